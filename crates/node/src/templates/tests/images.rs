//! OCI layouts: layers, whiteouts, and what is refused.

use super::Place;
use super::archives::{Tar, gzip, zstd};
use crate::templates::error::ImportError;
use crate::templates::import::Built;
use cofferdam_core::Digest;
use cofferdam_proto::node::ImportFormat;
use serde_json::{Value, json};
use sha2::Digest as _;
use std::collections::BTreeMap;

/// A layout being made: blobs by digest.
#[derive(Default)]
struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    fn blob(&mut self, bytes: Vec<u8>) -> String {
        let digest = Digest::from_sha256(sha2::Sha256::digest(&bytes).into());
        self.blobs.insert(digest.hex().to_owned(), bytes);
        digest.to_string()
    }

    fn document(&mut self, value: &Value) -> String {
        self.blob(serde_json::to_vec(value).unwrap())
    }

    fn manifest(&mut self, config: Value, layers: Vec<Vec<u8>>) -> Value {
        let config = self.document(&config);
        let layers: Vec<Value> =
            layers.into_iter().map(|bytes| json!({ "digest": self.blob(bytes) })).collect();
        json!({ "config": { "digest": config }, "layers": layers })
    }

    fn tar(&self, index: &Value) -> Vec<u8> {
        let mut tar = Tar::new().file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#).dir("blobs/sha256");
        for (hex, bytes) in &self.blobs {
            let path = format!("blobs/sha256/{hex}");
            tar = tar.entry(tar::EntryType::Regular, &path, bytes, |_| ());
        }
        tar.file("index.json", &index.to_string()).done()
    }

    fn single(config: Value, layers: Vec<Vec<u8>>) -> Vec<u8> {
        let mut layout = Self::default();
        let manifest = layout.manifest(config, layers);
        let digest = layout.document(&manifest);
        layout.tar(&json!({ "manifests": [{ "digest": digest }] }))
    }
}

fn import(place: &Place, bytes: Vec<u8>) -> Result<Built, ImportError> {
    place.build(ImportFormat::OciLayout, bytes)
}

#[track_caller]
fn check_refused(bytes: Vec<u8>, reason: &str) {
    let error = import(&Place::new(), bytes).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn layers_lie_on_each_other_and_whiteouts_remove() {
    let lower = Tar::new()
        .file("etc/a", "1")
        .file("etc/b", "1")
        .file("var/cache/x", "1")
        .file("var/cache/deep/y", "1")
        .file("opt/old/z", "1");
    let upper = Tar::new()
        .file("etc/a", "2")
        .file("etc/.wh.b", "")
        .file("var/cache/new", "2")
        .file("var/cache/.wh..wh..opq", "")
        .file(".wh.opt", "");
    let place = Place::new();
    import(&place, Layout::single(json!({}), vec![gzip(&lower.done()), zstd(&upper.done())])).unwrap();
    assert_eq!(place.read("etc/a"), "2");
    assert_eq!(place.read("var/cache/new"), "2");
    for gone in ["etc/b", "var/cache/x", "var/cache/deep", "opt", "etc/.wh.b", "var/cache/.wh..wh..opq"] {
        assert!(!place.exists(gone), "{gone}");
    }
}

#[test]
fn an_opaque_mark_spares_what_its_own_layer_placed_deeper() {
    let lower = Tar::new().file("d/e/old", "1").file("d/f/old", "1");
    let upper = Tar::new().file("d/e/new", "2").file("d/.wh..wh..opq", "");
    let place = Place::new();
    import(&place, Layout::single(json!({}), vec![lower.done(), upper.done()])).unwrap();
    assert_eq!(place.read("d/e/new"), "2");
    assert!(!place.exists("d/e/old") && !place.exists("d/f"));
}

#[test]
fn whiteouts_stay_inside() {
    let lower = |place: &Place| {
        Tar::new().link("door", &place.dir.path().join("outside").display().to_string()).done()
    };
    for name in ["door/.wh.file", "door/.wh..wh..opq"] {
        let place = Place::new();
        let layers = vec![lower(&place), Tar::new().file(name, "").done()];
        assert!(import(&place, Layout::single(json!({}), layers)).is_err(), "{name}");
    }
    for name in [".wh.", ".wh..", ".wh..."] {
        check_refused(
            Layout::single(json!({}), vec![Tar::new().file(name, "").done()]),
            "whiteout of nothing",
        );
    }
}

#[test]
fn a_plain_root_file_system_may_have_names_like_whiteouts() {
    let place = Place::new();
    place.rootfs(Tar::new().file("a", "x").file(".wh.a", "y").done()).unwrap();
    assert_eq!((place.read("a").as_str(), place.read(".wh.a").as_str()), ("x", "y"));
}

#[test]
fn what_the_image_says_about_processes_becomes_the_defaults() {
    let passwd = Tar::new().file("etc/passwd", "user:x:1000:1000::/home/user:/bin/sh\n").done();
    let config = json!({ "config": {
        "User": "app:staff", "WorkingDir": "/srv", "Env": ["PATH=/opt/bin:/bin", "EMPTY=", "EQ=a=b"],
    } });
    let built = import(&Place::new(), Layout::single(config, vec![passwd.clone()])).unwrap();
    assert_eq!((built.defaults.user.as_str(), built.defaults.workdir.as_str()), ("app", "/srv"));
    assert_eq!(built.defaults.env["PATH"], "/opt/bin:/bin");
    assert_eq!((built.defaults.env["EMPTY"].as_str(), built.defaults.env["EQ"].as_str()), ("", "a=b"));
    let silent = import(&Place::new(), Layout::single(json!({ "config": {} }), vec![passwd])).unwrap();
    assert_eq!((silent.defaults.user.as_str(), silent.defaults.workdir.as_str()), ("user", ""));
}

#[test]
fn blobs_that_lie_about_their_bytes_are_refused() {
    let mut layout = Layout::default();
    let manifest = layout.manifest(json!({}), vec![Tar::new().file("a", "x").done()]);
    let layer = manifest["layers"][0]["digest"].as_str().unwrap()["sha256:".len()..].to_owned();
    let digest = layout.document(&manifest);
    let index = json!({ "manifests": [{ "digest": digest }] });
    layout.blobs.insert(layer.clone(), Tar::new().file("a", "evil").done());
    check_refused(layout.tar(&index), "other bytes");
    layout.blobs.remove(&layer);
    check_refused(layout.tar(&index), "missing");
}

#[test]
fn the_image_for_this_machine_is_chosen_through_nested_indexes() {
    let here = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let mut layout = Layout::default();
    let right = layout.manifest(json!({}), vec![Tar::new().file("right", "").done()]);
    let wrong = layout.manifest(json!({}), vec![Tar::new().file("wrong", "").done()]);
    let (right, wrong) = (layout.document(&right), layout.document(&wrong));
    let inner = json!({ "manifests": [
        { "digest": wrong, "platform": { "architecture": "s390x", "os": "linux" } },
        { "digest": right, "platform": { "architecture": here, "os": "linux" } },
        { "digest": wrong, "platform": { "architecture": "unknown", "os": "unknown" } },
    ] });
    let inner = layout.document(&inner);
    let index = json!({ "manifests": [
        { "mediaType": "application/vnd.oci.image.index.v1+json", "digest": inner },
    ] });
    let place = Place::new();
    import(&place, layout.tar(&index)).unwrap();
    assert!(place.exists("right") && !place.exists("wrong"));
}

#[test]
fn layouts_that_leave_a_choice_or_none_are_refused() {
    let mut layout = Layout::default();
    let manifest = layout.manifest(json!({}), vec![Tar::new().file("a", "").done()]);
    let one = layout.document(&manifest);
    let two = json!({ "manifests": [{ "digest": one }, { "digest": one }] });
    check_refused(layout.tar(&two), "2 images");
    check_refused(layout.tar(&json!({ "manifests": [] })), "no image for");
    let other = json!({ "manifests": [
        { "digest": one, "platform": { "architecture": "s390x", "os": "linux" } },
    ] });
    check_refused(layout.tar(&other), "no image for");
    check_refused(Layout::single(json!({ "architecture": "s390x" }), vec![]), "this machine is");
}

#[test]
fn malformed_layouts_are_refused() {
    check_refused(Tar::new().file("index.json", "{").done(), "malformed");
    check_refused(Tar::new().file("etc/motd", "x").done(), "no index.json");
    check_refused(Tar::new().link("index.json", "/etc/passwd").done(), "no index.json");
    let climbing = json!({ "manifests": [{ "digest": "sha256:../../../etc/passwd" }] }).to_string();
    check_refused(Tar::new().file("index.json", &climbing).done(), "malformed");
    let huge = format!("{{\"manifests\":[],\"x\":\"{}\"}}", "y".repeat(5 << 20));
    check_refused(Tar::new().file("index.json", &huge).done(), "too large");
    let env = json!({ "config": { "Env": ["no equals sign"] } });
    check_refused(Layout::single(env, vec![Tar::new().file("a", "").done()]), "malformed");
    let user = json!({ "config": { "User": "../../root" } });
    check_refused(Layout::single(user, vec![Tar::new().file("a", "").done()]), "malformed");
}

#[test]
fn indexes_that_point_at_themselves_for_ever_end() {
    let mut layout = Layout::default();
    let kind = "application/vnd.oci.image.index.v1+json";
    let mut digest = layout.document(&json!({ "manifests": [] }));
    for _ in 0..6 {
        digest = layout.document(&json!({ "manifests": [{ "mediaType": kind, "digest": digest }] }));
    }
    let index = json!({ "manifests": [{ "mediaType": kind, "digest": digest }] });
    check_refused(layout.tar(&index), "nested too deeply");
}

#[test]
fn too_many_layers_are_refused() {
    let mut layout = Layout::default();
    let layer = json!({ "digest": layout.blob(Tar::new().file("a", "").done()) });
    let config = layout.document(&json!({}));
    let layers = vec![layer; cofferdam_core::limits::IMPORT_LAYERS_MAX + 1];
    let manifest = json!({ "config": { "digest": config }, "layers": layers });
    let digest = layout.document(&manifest);
    check_refused(layout.tar(&json!({ "manifests": [{ "digest": digest }] })), "layers");
}

#[test]
fn a_layer_that_was_cut_is_refused() {
    check_refused(Layout::single(json!({}), vec![Tar::new().file("a", "x").cut()]), "end mark");
}
