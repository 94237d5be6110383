//! Owns the stage that runs each fuzz target for a few seconds. The targets are built by the stable compiler with the
//! coverage pass of LLVM; where that pass is missing the stage skips visibly.

use super::Context;
use super::cargo::CARGO_SECONDS;
use super::counts::Counts;
use crate::run::{Job, Log};
use crate::tidy::parsers::PARSERS;
use crate::{debian, print};
use anyhow::{Context as _, Result};
use std::path::Path;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What `cargo fuzz` passes as well, without a sanitizer: these flags need no nightly compiler.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Builds the targets and runs each.
pub(super) fn run(context: &Context, log: &mut Log) -> Result<Counts> {
    debian::install(&[debian::SERVER, debian::TESTS])?;
    let target_dir = context.target.join("fuzz");
    let build = Job::new("cargo", CARGO_SECONDS)
        .args(["build", "--release", "--locked", "--bins", "--target", TRIPLE])
        .env("RUSTFLAGS", RUSTFLAGS)
        .env("CARGO_TARGET_DIR", &target_dir)
        .dir(&context.root.join("fuzz"));
    if !log.run(build)? {
        if log.text()?.contains("unknown pass") {
            print::line("fuzz: skipped, this compiler has no coverage pass");
            return Ok(Counts { skipped: PARSERS.len(), ..Counts::default() });
        }
        return Ok(Counts::one_failed());
    }
    let mut counts = Counts::default();
    for parser in PARSERS {
        let program = target_dir.join(TRIPLE).join("release").join(parser.target);
        counts.add(Counts::of(run_target(context, log, &program, parser.target)?));
    }
    Ok(counts)
}

fn run_target(context: &Context, log: &mut Log, program: &Path, name: &str) -> Result<bool> {
    let work = context.target.join("fuzz-work").join(name);
    let corpus = work.join("corpus");
    std::fs::create_dir_all(&corpus).with_context(|| format!("make {}", corpus.display()))?;
    let seeds = context.root.join("fuzz/seeds").join(name);
    let seconds = context.options.fuzz_seconds;
    let mut args = vec![
        format!("-max_total_time={seconds}"),
        "-timeout=5".to_owned(),
        "-rss_limit_mb=1024".to_owned(),
        "-max_len=4096".to_owned(),
        format!("-artifact_prefix={}/", work.display()),
        corpus.display().to_string(),
    ];
    args.extend(seeds.is_dir().then(|| seeds.display().to_string()));
    log.run(Job::new(program, seconds + 60).args(args).dir(&work))
}
