//! Owns finding everything that descends from a process, and ending it. A process counts when it carries the mark (a hard
//! limit that every descendant inherits and that no program has a reason to change), is in the session or group of the
//! process, or has a parent that counts. Without /proc only the process and its group are reached.

use crate::process::Process;
use cofferdam_sys::wait::{self, PidFd};
use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

const KILL: u8 = 9;
const STOP: u8 = 19;
/// How long a tree may resist.
const RESISTANCE_MAX: Duration = Duration::from_secs(20);
/// Rounds of killing before everything is stopped first: a tree that forks faster than it is killed comes to a stand at
/// its process limit when the dead do not make room.
const PLAIN_ROUNDS: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// One line of /proc.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    pid: u32,
    state: u8,
    parent: u32,
    group: u32,
    session: u32,
    start: u64,
}

/// Sends `signal` once to every process of the tree.
pub(crate) fn signal(process: &Process, signal: u8) {
    if signal == KILL {
        return kill(process);
    }
    let rows = members(process);
    if rows.is_empty() {
        // It may have ended meanwhile.
        process.send(signal).ok();
    }
    for row in rows {
        deliver(&row, signal);
    }
}

/// Ends the tree: until nothing of it is left, however often it forks meanwhile.
pub(crate) fn kill(process: &Process) {
    process.send(KILL).ok();
    if !std::path::Path::new("/proc/self/stat").exists() {
        wait::kill_group(process.pid(), KILL).ok();
        return;
    }
    let deadline = Instant::now() + RESISTANCE_MAX;
    let mut pause = PAUSE_MIN;
    for round in 0.. {
        let mut rows = members(process);
        if rows.is_empty() || Instant::now() > deadline {
            return;
        }
        if round >= PLAIN_ROUNDS {
            rows = stop_all(process, rows, deadline);
        }
        rows.iter().for_each(|row| deliver(row, KILL));
        // They die when they are scheduled, not at once.
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Stops the members until all that are found are stopped.
fn stop_all(process: &Process, mut rows: Vec<Row>, deadline: Instant) -> Vec<Row> {
    while rows.iter().any(|row| row.state != b'T') && Instant::now() < deadline {
        rows.iter().filter(|row| row.state != b'T').for_each(|row| deliver(row, STOP));
        std::thread::sleep(PAUSE_MIN);
        rows = members(process);
    }
    rows
}

/// Signals exactly the process that the row is about.
fn deliver(row: &Row, signal: u8) {
    let Ok(handle) = PidFd::open(row.pid) else { return };
    if read(row.pid).is_some_and(|now| now.start == row.start) {
        // It may have ended meanwhile.
        handle.signal(signal).ok();
    }
}

fn members(process: &Process) -> Vec<Row> {
    let rows: Vec<Row> = pids().filter_map(read).filter(|row| !matches!(row.state, b'Z' | b'X')).collect();
    let mark = process.mark.to_string();
    // Once it is reaped its number may come back as something else; what it left behind has the mark.
    let root = if process.has_ended() { None } else { Some(process.pid()) };
    select(rows, root, |pid| is_marked(pid, &mark))
}

fn pids() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| *pid != own)
}

fn read(pid: u32) -> Option<Row> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state ppid pgrp session …`; the name can contain anything.
fn parse(pid: u32, stat: &[u8]) -> Option<Row> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let mut number = || fields.next()?.parse::<i64>().ok().map(|number| u32::try_from(number).unwrap_or(0));
    let (parent, group, session) = (number()?, number()?, number()?);
    let start = fields.nth(15)?.parse().ok()?;
    Some(Row { pid, state, parent, group, session, start })
}

fn select(rows: Vec<Row>, root: Option<u32>, is_marked: impl Fn(u32) -> bool) -> Vec<Row> {
    let is_of_root = |row: &Row| root.is_some_and(|root| [row.pid, row.session, row.group].contains(&root));
    let mut chosen: HashSet<u32> =
        rows.iter().filter(|row| is_of_root(row) || is_marked(row.pid)).map(|row| row.pid).collect();
    loop {
        let before = chosen.len();
        let children: Vec<u32> =
            rows.iter().filter(|row| chosen.contains(&row.parent)).map(|row| row.pid).collect();
        chosen.extend(children);
        if chosen.len() == before {
            break;
        }
    }
    rows.into_iter().filter(|row| chosen.contains(&row.pid)).collect()
}

/// The hard limit of RLIMIT_RTTIME, `Max realtime timeout   soft   hard   us`.
fn is_marked(pid: u32, mark: &str) -> bool {
    let Ok(limits) = fs::read_to_string(format!("/proc/{pid}/limits")) else { return false };
    let line = limits.lines().find(|line| line.starts_with("Max realtime timeout"));
    line.is_some_and(|line| line.split_ascii_whitespace().any(|field| field == mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, parent: u32, session: u32) -> Row {
        Row { pid, state: b'S', parent, group: session, session, start: 0 }
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let line = b"7 (a) R 1) (x) S 3 4 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let expected = Row { pid: 7, state: b'S', parent: 3, group: 4, session: 5, start: 4711 };
        assert_eq!(parse(7, line), Some(expected));
        assert_eq!(parse(7, b"7 (cut) S 3"), None);
        assert_eq!(parse(7, b""), None);
    }

    #[test]
    fn our_own_line_is_read() {
        let own = read(std::process::id()).unwrap();
        assert!(own.parent > 0 && own.start > 0);
    }

    #[test]
    fn descendants_sessions_and_marked_ones_belong_to_the_tree() {
        let rows = vec![
            row(10, 1, 10),
            row(11, 10, 11),
            row(12, 11, 12),
            row(13, 1, 10),
            row(14, 1, 14),
            row(15, 1, 15),
        ];
        let chosen: Vec<u32> = select(rows, Some(10), |pid| pid == 14).iter().map(|row| row.pid).collect();
        assert_eq!(chosen, [10, 11, 12, 13, 14]);
    }
}
