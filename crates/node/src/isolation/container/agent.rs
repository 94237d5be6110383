//! Owns the bytes of the agent's program, which the build of this crate made.

/// The static program that becomes the first process of every sandbox.
pub const AGENT: &[u8] = include_bytes!(env!("COFFERDAM_AGENT"));

#[cfg(test)]
mod tests {
    use super::AGENT;

    #[test]
    fn the_agent_is_a_program_without_an_interpreter() {
        assert_eq!(&AGENT[..4], b"\x7fELF");
        // PT_INTERP names the dynamic linker, which no template needs to have.
        assert!(!AGENT.windows(8).any(|text| text == b"ld-linux"));
    }
}
