//! Owns system call filters: seccomp(2), and the compiler from a table to a BPF program.
//!
//! The program is a binary search over the numbers. The kernel runs every filter once for each known number when it is
//! loaded, so loading a linear one costs several times more than the search, and so does each call later.

use crate::call::last_failed;
use std::collections::BTreeMap;
use std::io;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It goes on.
    Allow,
    /// It fails with this error number.
    Errno(u16),
}

/// A test of one argument. Only its low 32 bits count: everything that is filtered here is an `int` to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The argument is one of these.
    Is(u8, &'static [u32]),
    /// The argument is none of these.
    Not(u8, &'static [u32]),
    /// The argument has at least one of these bits.
    AnyBit(u8, u32),
}

/// An action for calls that pass all tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// All must hold.
    pub tests: &'static [Test],
    /// What happens then.
    pub action: Action,
}

/// What the filter says about one number: the first case that holds, or the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// In order.
    pub cases: Vec<Case>,
    /// When none holds.
    pub default: Action,
}

impl Rule {
    /// The same for every argument.
    pub fn always(action: Action) -> Self {
        Self { cases: Vec::new(), default: action }
    }
}

/// A table over system call numbers.
#[derive(Debug, Clone)]
pub struct Table {
    rules: BTreeMap<u32, Rule>,
    last: u32,
    beyond: Action,
}

impl Table {
    /// Allows the numbers up to `last` and gives `beyond` to those after it.
    pub fn new(last: i64, beyond: Action) -> Self {
        Self { rules: BTreeMap::new(), last: number(last), beyond }
    }

    /// Replaces the rule of a number.
    pub fn set(&mut self, call: i64, rule: Rule) {
        self.rules.insert(number(call), rule);
    }

    /// Puts a case before those that the number has.
    pub fn add_case(&mut self, call: i64, case: Case) {
        self.rules.entry(number(call)).or_insert_with(|| Rule::always(Action::Allow)).cases.insert(0, case);
    }

    /// Intervals in ascending order that cover every number: the first of each and its rule.
    fn intervals(&self) -> Vec<(u32, Rule)> {
        let mut intervals: Vec<(u32, Rule)> = Vec::new();
        let mut next = 0;
        let mut push = |first: u32, rule: Rule| match intervals.last() {
            Some((_, before)) if *before == rule => {}
            Some(_) | None => intervals.push((first, rule)),
        };
        for (&call, rule) in self.rules.range(..=self.last) {
            if call > next {
                push(next, Rule::always(Action::Allow));
            }
            push(call, rule.clone());
            next = call + 1;
        }
        if next <= self.last {
            push(next, Rule::always(Action::Allow));
        }
        push(self.last + 1, Rule::always(self.beyond));
        intervals
    }

    /// Compiles the table for the architecture of this program; calls of any other fail with ENOSYS.
    pub fn compile(&self) -> Program {
        let mut program = Program(Vec::new());
        program.push(LOAD, ARCH_OFFSET, 0, 0);
        program.push(JUMP_EQUAL, NATIVE_ARCH, 1, 0);
        program.ret(Action::Errno(ENOSYS));
        program.push(LOAD, NUMBER_OFFSET, 0, 0);
        program.search(&self.intervals());
        program
    }
}

fn number(call: i64) -> u32 {
    u32::try_from(call).expect("system call numbers are small and not negative")
}

const ENOSYS: u16 = libc::ENOSYS as u16;
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
#[cfg(target_arch = "x86_64")]
const NATIVE_ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE_ARCH: u32 = 0xC000_00B7;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const JUMP_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JUMP_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A compiled filter, to be loaded any number of times.
#[derive(Debug, Clone)]
pub struct Program(Vec<libc::sock_filter>);

impl Program {
    fn push(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        self.0.push(libc::sock_filter { code: code as u16, jt, jf, k });
    }

    fn ret(&mut self, action: Action) {
        let value = match action {
            Action::Allow => libc::SECCOMP_RET_ALLOW,
            Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
        };
        self.push(RETURN, value, 0, 0);
    }

    fn search(&mut self, intervals: &[(u32, Rule)]) {
        let [(_, rule)] = intervals else {
            let (low, high) = intervals.split_at(intervals.len() / 2);
            // A conditional jump reaches 255 instructions; the unconditional one behind it reaches everything.
            self.push(JUMP_AT_LEAST, high[0].0, 0, 1);
            let far = self.0.len();
            self.push(JUMP, 0, 0, 0);
            self.search(low);
            self.0[far].k = distance(far, self.0.len());
            return self.search(high);
        };
        for case in &rule.cases {
            self.case(case);
        }
        self.ret(rule.default);
    }

    /// Each test that fails jumps behind the action, to the next case.
    fn case(&mut self, case: &Case) {
        let mut failing = Vec::new();
        for test in case.tests {
            let (Test::Is(argument, _) | Test::Not(argument, _) | Test::AnyBit(argument, _)) = *test;
            self.push(LOAD, ARGUMENTS_OFFSET + 8 * u32::from(argument), 0, 0);
            match *test {
                Test::AnyBit(_, bits) => self.push(JUMP_ANY_BIT, bits, 1, 0),
                Test::Is(_, values) => self.any_of(values, 1, 0),
                Test::Not(_, values) => self.any_of(values, 0, 1),
            }
            failing.push(self.0.len());
            self.push(JUMP, 0, 0, 0);
        }
        self.ret(case.action);
        for at in failing {
            self.0[at].k = distance(at, self.0.len());
        }
    }

    /// Behind the comparisons stands one jump; `found` and `missed` say how many instructions after the comparisons to
    /// go on at: 0 is that jump, 1 is behind it.
    fn any_of(&mut self, values: &[u32], found: u8, missed: u8) {
        for (index, value) in values.iter().enumerate() {
            let left = u8::try_from(values.len() - 1 - index).expect("value lists of filters are short");
            let on_miss = if left == 0 { missed } else { 0 };
            self.push(JUMP_EQUAL, *value, left + found, on_miss);
        }
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: the check of the architecture is always there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the filter on this thread and all it starts, for good. Needs CAP_SYS_ADMIN in its user namespace or
    /// no_new_privs.
    pub fn load(&self) -> io::Result<()> {
        let header = libc::sock_fprog {
            len: u16::try_from(self.0.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: `header` describes the instructions that `self` owns; the kernel copies them during the call and checks
        // them, and does not write there.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const header) };
        if result == 0 { Ok(()) } else { Err(last_failed("seccomp")) }
    }
}

fn distance(from: usize, to: usize) -> u32 {
    u32::try_from(to - from - 1).expect("filters are short")
}

#[cfg(test)]
mod tests;
