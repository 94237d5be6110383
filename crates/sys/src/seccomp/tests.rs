//! Runs compiled programs on a small interpreter and compares them with the table they came from.

use super::*;

/// The instructions that the compiler emits, as the kernel executes them.
fn run(program: &Program, arch: u32, call: u32, arguments: [u32; 6]) -> u32 {
    let mut at = 0;
    let mut accumulator = 0u32;
    loop {
        let instruction = program.0[at];
        at += 1;
        let branch = |taken: bool| usize::from(if taken { instruction.jt } else { instruction.jf });
        match u32::from(instruction.code) {
            LOAD => {
                accumulator = match instruction.k {
                    NUMBER_OFFSET => call,
                    ARCH_OFFSET => arch,
                    offset => arguments[((offset - ARGUMENTS_OFFSET) / 8) as usize],
                }
            }
            JUMP => at += instruction.k as usize,
            JUMP_EQUAL => at += branch(accumulator == instruction.k),
            JUMP_AT_LEAST => at += branch(accumulator >= instruction.k),
            JUMP_ANY_BIT => at += branch(accumulator & instruction.k != 0),
            RETURN => return instruction.k,
            code => panic!("unknown instruction {code}"),
        }
    }
}

fn expected(action: Action) -> u32 {
    match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
    }
}

#[track_caller]
fn check(table: &Table, call: u32, arguments: [u32; 6], action: Action) {
    assert_eq!(run(&table.compile(), NATIVE_ARCH, call, arguments), expected(action), "{call} {arguments:?}");
}

const EPERM: Action = Action::Errno(1);
const EPROTONOSUPPORT: Action = Action::Errno(93);

fn table() -> Table {
    let mut table = Table::new(450, Action::Errno(38));
    for call in [5, 6, 7, 100, 449] {
        table.set(call, Rule::always(EPERM));
    }
    let cases = vec![
        Case { tests: &[Test::Not(0, &[1, 2, 10])], action: EPERM },
        Case { tests: &[Test::Is(0, &[2, 10]), Test::Not(2, &[0, 6, 17])], action: EPROTONOSUPPORT },
    ];
    table.set(41, Rule { cases, default: Action::Allow });
    table.add_case(56, Case { tests: &[Test::AnyBit(0, 0x7e02_0000)], action: EPERM });
    table
}

#[test]
fn every_number_gets_its_rule() {
    let table = table();
    for call in 0..600 {
        let action = match call {
            5 | 6 | 7 | 100 | 449 => EPERM,
            41 => EPERM,
            451.. => Action::Errno(38),
            _ => Action::Allow,
        };
        check(&table, call, [0; 6], action);
    }
    check(&table, 0x4000_0001, [0; 6], Action::Errno(38));
}

#[test]
fn arguments_decide_where_they_are_tested() {
    let table = table();
    check(&table, 41, [1, 0, 99, 0, 0, 0], Action::Allow);
    check(&table, 41, [2, 0, 6, 0, 0, 0], Action::Allow);
    check(&table, 41, [10, 0, 17, 0, 0, 0], Action::Allow);
    check(&table, 41, [10, 0, 132, 0, 0, 0], EPROTONOSUPPORT);
    check(&table, 41, [17, 0, 0, 0, 0, 0], EPERM);
    check(&table, 56, [0x11, 0, 0, 0, 0, 0], Action::Allow);
    check(&table, 56, [0x1000_0011, 0, 0, 0, 0, 0], EPERM);
}

#[test]
fn another_architecture_has_no_calls() {
    let result = run(&table().compile(), 0x4000_0003, 1, [0; 6]);
    assert_eq!(result, expected(Action::Errno(38)));
}

#[test]
fn far_jumps_reach_over_large_tables() {
    let mut table = Table::new(460, Action::Errno(38));
    for call in (0..460).step_by(2) {
        table.set(call, Rule::always(EPERM));
    }
    assert!(table.compile().len() > 512);
    for call in 0..460 {
        check(&table, call, [0; 6], if call % 2 == 0 { EPERM } else { Action::Allow });
    }
}
