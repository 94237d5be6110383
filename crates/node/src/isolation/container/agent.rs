//! Owns the bytes of the agent's program, which the build of this crate made.

/// The static program that becomes the first process of every sandbox.
pub const AGENT: &[u8] = include_bytes!(env!("COFFERDAM_AGENT"));

#[cfg(test)]
mod tests {
    use super::AGENT;

    fn number(at: usize, bytes: usize) -> usize {
        AGENT[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    #[test]
    fn the_agent_is_a_program_without_an_interpreter() {
        const INTERPRETER: usize = 3;
        assert_eq!(&AGENT[..5], b"\x7fELF\x02");
        let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        let kinds: Vec<usize> = (0..count).map(|index| number(headers + index * size, 4)).collect();
        assert!(!kinds.is_empty() && !kinds.contains(&INTERPRETER), "{kinds:?}");
    }
}
