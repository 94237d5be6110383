//! Owns the accounts of the sandbox: /etc/passwd and /etc/group, read anew each time, bounded, never through the C
//! library. Without these files there is one user, root.

use crate::failure::because;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reason, User};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// How much of a file of accounts is read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Most supplementary groups of a user.
const GROUPS_MAX: usize = 1024;

/// A user of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
}

/// The account of `user`, or of `default` when the caller names none.
pub(crate) fn find(user: &User, default: &str) -> Result<Account, Failure> {
    let name = match user {
        User::Default => default,
        User::Named(name) => name,
    };
    lookup(name, &read("/etc/passwd")).ok_or_else(|| {
        because(ErrorKind::InvalidArgument, Reason::UnknownUser, format!("invalid username: '{name}'"))
    })
}

/// The supplementary groups of an account, its own group included.
pub(crate) fn groups(account: &Account) -> Vec<u32> {
    groups_in(&account.name, account.gid, &read("/etc/group"))
}

/// Names by number, for telling who owns a file.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    /// Reads both files.
    pub(crate) fn load() -> Self {
        let names = |text: &str| {
            let mut map = BTreeMap::new();
            for line in text.lines().rev() {
                let mut fields = line.split(':');
                if let (Some(name), Some(Ok(id))) = (fields.next(), fields.nth(1).map(str::parse::<u32>)) {
                    map.insert(id, name.to_owned());
                }
            }
            map
        };
        Self { users: names(&read("/etc/passwd")), groups: names(&read("/etc/group")) }
    }

    /// Name of a user, or the number.
    pub(crate) fn user(&self, uid: u32) -> String {
        named(&self.users, uid)
    }

    /// Name of a group, or the number.
    pub(crate) fn group(&self, gid: u32) -> String {
        named(&self.groups, gid)
    }
}

fn named(names: &BTreeMap<u32, String>, id: u32) -> String {
    match names.get(&id) {
        Some(name) => name.clone(),
        None if id == 0 => "root".to_owned(),
        None => id.to_string(),
    }
}

/// The content of a regular file; empty when there is none.
fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = cofferdam_sys::file::open_to_read(Path::new(path))
        && let Ok(metadata) = file.metadata()
        && metadata.is_file()
    {
        let size = metadata.len().min(FILE_BYTES_MAX);
        bytes.reserve_exact(usize::try_from(size).unwrap_or(0) + 32);
        // What could be read counts; a file that cannot be read is like one that is not there.
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn lookup(name: &str, passwd: &str) -> Option<Account> {
    if name.is_empty() {
        return None;
    }
    let accounts = || passwd.lines().filter_map(parse_account);
    if let Some(account) = accounts().find(|account| account.name == name) {
        return Some(account);
    }
    if name == "root" {
        return Some(Account { name: name.to_owned(), uid: 0, gid: 0, home: "/root".to_owned() });
    }
    if !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The number that means "leave as it is" to the kernel is nobody's.
    let uid = name.parse::<u32>().ok().filter(|uid| *uid != u32::MAX)?;
    let unknown = Account { name: name.to_owned(), uid, gid: 0, home: "/".to_owned() };
    Some(accounts().find(|account| account.uid == uid).unwrap_or(unknown))
}

fn parse_account(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    let home = fields.nth(1).filter(|home| home.starts_with('/')).unwrap_or("/");
    let home = crate::paths::clean(home);
    Some(Account { name: name.to_owned(), uid, gid, home })
}

fn groups_in(name: &str, own: u32, group: &str) -> Vec<u32> {
    let mut groups = vec![own];
    for line in group.lines() {
        let mut fields = line.split(':');
        let Some(Ok(gid)) = fields.nth(2).map(str::parse::<u32>) else { continue };
        let is_member =
            fields.next().is_some_and(|members| members.split(',').any(|member| member.trim() == name));
        if is_member && !groups.contains(&gid) && groups.len() < GROUPS_MAX {
            groups.push(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\nbroken\n::::\n\
                          odd:x:12:13:::\nlast:x:14:15:gecos:/home/../srv/last/:/bin/sh";
    const GROUP: &str = "root:x:0:\nsudo:x:27:other,user\nuser:x:1000:\nbad:x:nan:user\ndocker:x:99: user ";

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let user = lookup("user", PASSWD).unwrap();
        assert_eq!((user.uid, user.gid, user.home.as_str()), (1000, 1000, "/home/user"));
        assert_eq!(lookup("1000", PASSWD).unwrap(), user);
        assert_eq!(lookup("last", PASSWD).unwrap().home, "/srv/last");
        assert_eq!(lookup("odd", PASSWD).unwrap().home, "/");
    }

    #[test]
    fn a_number_without_a_name_is_in_the_group_of_root() {
        let nobody = lookup("4242", PASSWD).unwrap();
        assert_eq!((nobody.uid, nobody.gid, nobody.home.as_str()), (4242, 0, "/"));
    }

    #[test]
    fn without_a_file_there_is_only_root() {
        assert_eq!(lookup("root", "").unwrap().uid, 0);
        assert!(lookup("user", "").is_none());
    }

    #[test]
    fn what_is_no_user_is_not_found() {
        for name in ["", "nobody", "-1", "4294967295", "99999999999", "broken"] {
            assert!(lookup(name, PASSWD).is_none(), "{name}");
        }
    }

    #[test]
    fn groups_are_those_that_list_the_user() {
        assert_eq!(groups_in("user", 1000, GROUP), [1000, 27, 99]);
        assert_eq!(groups_in("user", 1000, ""), [1000]);
    }
}
