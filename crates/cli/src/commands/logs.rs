//! `logs`: what happened in a sandbox, from its record.

use super::{Session, Verb, parse};
use crate::args;
use crate::client::{Client, query::Query};
use crate::console::Console;
use crate::error::Error;
use crate::output::{self, Format};
use clap::Args;
use cofferdam_core::SandboxId;
use cofferdam_proto::api::{LogList, LogRow};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

pub(super) const VERB: Verb = Verb {
    name: "logs",
    about: "Show what happened in a sandbox",
    augment: LogsArgs::augment_args,
    perform: |session, matches| Box::pin(async move { logs(session, parse(matches)?).await }),
    own_failure: None,
};

/// Time between two looks at a sandbox that is followed.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
struct LogsArgs {
    /// Wait for more until the sandbox ends
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    format: Format,
    /// The sandbox
    #[arg(value_name = "SANDBOX", value_parser = args::sandbox)]
    sandbox: SandboxId,
}

async fn logs(session: Session<'_>, args: LogsArgs) -> Result<u8, Error> {
    let client = session.client()?;
    let mut cursor = None;
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // Asked for before the rows, so that the rows of the end are not missed.
        let ended = !args.follow || has_ended(&client, &args.sandbox).await?;
        cursor = Some(drain(&client, session.console, &args, cursor).await?);
        if ended {
            return Ok(0);
        }
    }
}

/// Prints all rows after `cursor`, page after page, and gives the cursor after the last.
async fn drain(
    client: &Client,
    console: &Console,
    args: &LogsArgs,
    mut cursor: Option<u64>,
) -> Result<u64, Error> {
    loop {
        let mut query = Query::default();
        query.push_some("after", cursor.map(|cursor| cursor.to_string()).as_deref());
        let page: LogList =
            client.get(&query.append(&format!("/v1/sandboxes/{}/logs", args.sandbox))).await?;
        for row in &page.rows {
            console.say(&line(row, args.format.json))?;
        }
        if page.rows.is_empty() || cursor == Some(page.cursor) {
            return Ok(page.cursor);
        }
        cursor = Some(page.cursor);
    }
}

async fn has_ended(client: &Client, id: &SandboxId) -> Result<bool, Error> {
    match client.sandbox(id).await {
        Ok(sandbox) => Ok(sandbox.state.is_final()),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
    }
}

fn line(row: &LogRow, json: bool) -> String {
    if json {
        return serde_json::to_string(row).expect("answers have string keys");
    }
    let mut text = format!("{} {}", row.at, row.event);
    if let Some(fields) = row.fields.as_object() {
        for (name, value) in fields {
            let value = value.as_str().map_or_else(|| value.to_string(), quoted);
            text.push_str(&format!(" {name}={value}"));
        }
    }
    output::printable(&text)
}

/// A text as one word: in quotes when it has blanks in it.
fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    if plain { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_whatever_is_in_it() {
        let row = LogRow {
            at: "2026-01-02T03:04:05.000000Z".into(),
            event: "command_finished".into(),
            fields: serde_json::json!({"argv": ["a", "b\n"], "cwd": "/a b", "exit": 0, "user": "root\n\u{1b}"}),
        };
        expect_test::expect![[
            r#"2026-01-02T03:04:05.000000Z command_finished argv=["a","b\n"] cwd="/a b" exit=0 user="root\n\u{1b}""#
        ]]
        .assert_eq(&line(&row, false));
    }
}
