//! Owns what is in the template `base`: packages, the user that clients expect, and the small changes that make Debian
//! behave like the images that their programs were written for.

use crate::templates::base::sources::Sources;
use cofferdam_core::Digest;
use sha2::{Digest as _, Sha256};

/// Without recommendations.
const PACKAGES: [&str; 24] = [
    "bash",
    "build-essential",
    "ca-certificates",
    "curl",
    "git",
    "iproute2",
    "less",
    "netcat-openbsd",
    "nodejs",
    "npm",
    "openssh-client",
    "passwd",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    "ripgrep",
    "sudo",
    "unzip",
    "util-linux",
    "wget",
    "xz-utils",
    "zip",
];

/// Documentation that nobody reads in a sandbox; licences stay.
const DPKG_OPTIONS: [&str; 5] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

/// Shell commands; `$1` is the new tree.
const HOOKS: [&str; 8] = [
    // uid 1000 with a login shell, and root at hand: that is what programs for these sandboxes expect.
    r#"chroot "$1" useradd --create-home --uid 1000 --user-group --shell /bin/bash user"#,
    r#"echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > "$1/etc/sudoers.d/user" && chmod 440 "$1/etc/sudoers.d/user""#,
    r#"chmod -R a+rwX "$1/usr/local" && mkdir -m 777 "$1/code""#,
    r#"echo 'LANG=C.UTF-8' > "$1/etc/default/locale""#,
    // `pip install` works as in the images of Python itself: a sandbox is thrown away, there is no host to protect.
    r#"rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED"#,
    // What the builder leaves of the host it ran on.
    r#"rm -f "$1/etc/hostname" "$1/etc/resolv.conf" "$1/etc/apt/apt.conf.d/99mmdebstrap""#,
    r#"rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/ldconfig/aux-cache "$1"/var/cache/apt/*.bin"#,
    r#"find "$1/var/log" -type f -delete"#,
];

/// The steps that the builder reports, in order, and what they are in our words.
pub(super) const STEPS: [(&str, &str); 8] = [
    ("running apt-get update", "fetch package lists"),
    ("downloading packages", "download essential packages"),
    ("extracting archives", "unpack essential packages"),
    ("installing essential packages", "install essential packages"),
    ("installing remaining packages", "install packages"),
    ("running --customize-hook", "configure"),
    ("cleaning package lists", "clean up"),
    ("creating tarball", "write archive"),
];

/// Arguments of the builder; the archive goes to its standard output.
pub(super) fn arguments(sources: &Sources) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--mode=root", "--variant=minbase", "--format=tar"].map(str::to_owned).into();
    arguments.push(format!("--include={}", PACKAGES.join(",")));
    arguments.extend(DPKG_OPTIONS.map(|option| format!("--dpkgopt={option}")));
    arguments.push("--aptopt=Acquire::Languages \"none\"".into());
    arguments.extend(sources.apt_options.iter().map(|option| format!("--aptopt={option}")));
    arguments.extend(HOOKS.map(|hook| format!("--customize-hook={hook}")));
    arguments.push(sources.suite.clone());
    arguments.push("-".into());
    arguments.extend(sources.lines.iter().cloned());
    arguments
}

/// The name of the finished archive: another recipe, suite or set of archives is another file.
pub(super) fn file_name(sources: &Sources) -> String {
    let plain = Sources { apt_options: Vec::new(), ..sources.clone() };
    let mut hash = Sha256::new();
    for argument in arguments(&plain) {
        hash.update((argument.len() as u64).to_be_bytes());
        hash.update(argument);
    }
    let digest = Digest::from_sha256(hash.finalize().into());
    format!("base-{}-{}.tar.zst", sources.suite, &digest.hex()[..16])
}
