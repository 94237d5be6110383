//! `doctor`: what the host of the server can do, and what to do about what it cannot.

use super::{Session, Verb, parse};
use crate::error::Error;
use crate::output::{self, Format};
use clap::Args;
use cofferdam_proto::api::DoctorReport;
use cofferdam_proto::node::Verdict;

pub(super) const VERB: Verb = Verb {
    name: "doctor",
    about: "Check what the host of the server can do",
    augment: DoctorArgs::augment_args,
    perform: |session, matches| Box::pin(async move { doctor(session, parse(matches)?).await }),
    own_failure: None,
};

#[derive(Debug, Args)]
struct DoctorArgs {
    #[command(flatten)]
    format: Format,
}

async fn doctor(session: Session<'_>, args: DoctorArgs) -> Result<u8, Error> {
    let report: DoctorReport = session.client()?.get("/v1/doctor").await?;
    if args.format.json {
        output::json(session.console, &report)?;
    } else {
        let rows = report.checks.iter().map(|check| {
            let remedy = check.remedy.clone().unwrap_or_default();
            [word(check.verdict).to_owned(), check.name.clone(), check.detail.clone(), remedy]
        });
        output::table(session.console, ["", "CHECK", "FOUND", "TO DO"], rows)?;
    }
    let failed = report.checks.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(u8::from(failed))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    }
}
