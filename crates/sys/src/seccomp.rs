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
        let mut code = vec![
            instruction(LOAD, ARCH_OFFSET, 0, 0),
            instruction(JUMP_EQUAL, NATIVE_ARCH, 1, 0),
            ret(Action::Errno(ENOSYS)),
            instruction(LOAD, NUMBER_OFFSET, 0, 0),
        ];
        code.extend(search(&self.intervals()));
        Program(code)
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

type Code = Vec<libc::sock_filter>;

fn instruction(code: u32, k: u32, jt: usize, jf: usize) -> libc::sock_filter {
    let short = |distance| u8::try_from(distance).expect("lists of a filter are short");
    libc::sock_filter { code: code as u16, jt: short(jt), jf: short(jf), k }
}

fn ret(action: Action) -> libc::sock_filter {
    let value = match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
    };
    instruction(RETURN, value, 0, 0)
}

fn search(intervals: &[(u32, Rule)]) -> Code {
    if let [(_, rule)] = intervals {
        let mut code: Code = rule.cases.iter().flat_map(case).collect();
        code.push(ret(rule.default));
        return code;
    }
    let (low, high) = intervals.split_at(intervals.len() / 2);
    let pivot = high[0].0;
    let (low, high) = (search(low), search(high));
    let mut code = Vec::with_capacity(low.len() + high.len() + 2);
    if low.len() <= usize::from(u8::MAX) {
        code.push(instruction(JUMP_AT_LEAST, pivot, low.len(), 0));
    } else {
        // A conditional jump does not reach that far; the unconditional one does.
        code.push(instruction(JUMP_AT_LEAST, pivot, 0, 1));
        code.push(instruction(JUMP, u32::try_from(low.len()).expect("filters are short"), 0, 0));
    }
    code.extend(low);
    code.extend(high);
    code
}

/// Built from its end: a test that fails jumps over what is there already, one that passes falls into it.
fn case(case: &Case) -> Code {
    let mut code = vec![ret(case.action)];
    for test in case.tests.iter().rev() {
        let over = code.len();
        let (Test::Is(argument, _) | Test::Not(argument, _) | Test::AnyBit(argument, _)) = *test;
        let mut block = vec![instruction(LOAD, ARGUMENTS_OFFSET + 8 * u32::from(argument), 0, 0)];
        match *test {
            Test::AnyBit(_, bits) => block.push(instruction(JUMP_ANY_BIT, bits, 0, over)),
            Test::Is(_, values) => block.extend(any_of(values, 0, over)),
            Test::Not(_, values) => block.extend(any_of(values, over, 0)),
        }
        block.extend(code);
        code = block;
    }
    code
}

/// Compares with each value; `found` and `missed` are how far behind the comparisons to go on.
fn any_of(values: &[u32], found: usize, missed: usize) -> impl Iterator<Item = libc::sock_filter> + '_ {
    values.iter().enumerate().map(move |(index, value)| {
        let left = values.len() - 1 - index;
        instruction(JUMP_EQUAL, *value, left + found, if left == 0 { missed } else { 0 })
    })
}

/// A compiled filter, to be loaded any number of times.
#[derive(Debug, Clone)]
pub struct Program(Code);

impl Program {
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

#[cfg(test)]
mod tests;
