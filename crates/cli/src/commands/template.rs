//! `template`: what sandboxes start from.

use super::{Session, Verb};
use crate::client::{Body, Client, query};
use crate::console::Console;
use crate::error::Error;
use crate::output::{self, Format};
use crate::progress::Progress;
use crate::transfer::archive::{self, Archive, Kind};
use clap::{Args, FromArgMatches as _, Subcommand, ValueEnum};
use cofferdam_core::{TemplateInfo, ids};
use cofferdam_proto::api::{ImportEvent, TemplateList};
use futures::StreamExt as _;
use http::{HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::path::PathBuf;

pub(super) const VERB: Verb = Verb {
    name: "template",
    about: "Manage templates",
    augment: |command| TemplateCommand::augment_subcommands(command).subcommand_required(true),
    perform: |session, matches| {
        Box::pin(async move {
            let parsed = TemplateCommand::from_arg_matches(matches);
            match parsed.map_err(|error| Error::Usage(error.to_string()))? {
                TemplateCommand::Ls(format) => list(session, format).await,
                TemplateCommand::Import(args) => import(session, args).await,
                TemplateCommand::Rm { names } => remove(session, &names).await,
            }
        })
    },
    own_failure: None,
};

/// Longest line of progress that is taken from the server.
const LINE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Subcommand)]
enum TemplateCommand {
    /// List templates
    Ls(Format),
    /// Make a template out of a root file system or an OCI image
    Import(ImportArgs),
    /// Remove templates; sandboxes that run are not touched
    Rm {
        /// The templates
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// A tar of a root file system (plain, gzip or zstd), a directory with one, or an OCI layout (directory or tar)
    #[arg(value_name = "FILE|DIR")]
    source: PathBuf,
    /// Name of the template
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: String,
    /// What the source is, where it cannot be told from the source
    #[arg(long = "format", value_name = "FORMAT")]
    kind: Option<KindArg>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindArg {
    Rootfs,
    OciLayout,
}

impl From<KindArg> for Kind {
    fn from(arg: KindArg) -> Self {
        match arg {
            KindArg::Rootfs => Self::Rootfs,
            KindArg::OciLayout => Self::OciLayout,
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    if ids::is_template_name(text) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 128 lower-case letters, digits, `-` or `_`".to_owned())
    }
}

async fn list(session: Session<'_>, format: Format) -> Result<u8, Error> {
    let list: TemplateList = session.client()?.get("/v1/templates").await?;
    if format.json {
        output::json(session.console, &list.templates)?;
    } else {
        show(session.console, &list.templates)?;
    }
    Ok(0)
}

fn show(console: &Console, templates: &[TemplateInfo]) -> Result<(), Error> {
    let now = output::now();
    let rows = templates.iter().map(|template| {
        [
            template.name.clone(),
            template.id.to_string(),
            template.digest.as_str()[..19].to_owned(),
            output::bytes(template.size_bytes),
            output::printable(&template.default_user),
            output::ago(&template.created_at.to_string(), now),
        ]
    });
    output::table(console, ["NAME", "ID", "DIGEST", "SIZE", "USER", "CREATED"], rows)
}

async fn import(session: Session<'_>, args: ImportArgs) -> Result<u8, Error> {
    let client = session.client()?;
    let archive = Archive::open(&args.source, args.kind.map(Kind::from))?;
    let sending = Progress::bytes(session.console, "send", archive.bytes());
    let kind = archive.kind();
    let body = archive::body(archive, &sending);
    let answer = put(&client, &args.name, kind, body).await;
    sending.finish();
    let steps = Progress::steps(session.console, "import");
    let made = follow(answer?, &steps).await;
    steps.finish();
    let made = made?;
    if args.format.json {
        output::json(session.console, &made)?;
    } else {
        session.console.say(&format!("{} {} {}", made.name, made.digest, output::bytes(made.size_bytes)))?;
    }
    Ok(0)
}

async fn put(client: &Client, name: &str, kind: Kind, body: Body) -> Result<Incoming, Error> {
    let mut address = query::Query::default();
    address.push("format", kind.as_str());
    let path = address.append(&format!("/v1/templates/{}", query::segment(name)));
    let mut request = client.request(Method::PUT, &path, body)?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    let response = client.send_slowly(&format!("import `{name}`"), request).await?;
    Ok(response.into_body())
}

/// Shows the progress that the server tells, until it tells the end.
async fn follow(answer: Incoming, steps: &Progress) -> Result<TemplateInfo, Error> {
    let what = "import";
    let broken =
        |source: Box<dyn std::error::Error + Send + Sync>| Error::Broken { what: what.into(), source };
    let mut chunks = answer.into_data_stream();
    let mut buffer = Vec::new();
    loop {
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            if line.trim_ascii().is_empty() {
                continue;
            }
            match crate::client::parse(what, &line)? {
                ImportEvent::Progress { step, done, total } => {
                    steps.step(&output::printable(&step), done, total);
                }
                ImportEvent::Template(info) => return Ok(*info),
                ImportEvent::Error(error) => return Err(Error::Api(Box::new(error))),
            }
        }
        match chunks.next().await {
            Some(Ok(chunk)) if buffer.len() + chunk.len() <= LINE_BYTES_MAX => {
                buffer.extend_from_slice(&chunk)
            }
            Some(Ok(_)) => return Err(broken("a line of progress is too long".into())),
            Some(Err(error)) => return Err(broken(error.into())),
            None => return Err(broken("it ended before the import".into())),
        }
    }
}

async fn remove(session: Session<'_>, names: &[String]) -> Result<u8, Error> {
    let client = session.client()?;
    let mut failed = 0;
    for name in names {
        match client.delete(&format!("/v1/templates/{}", query::segment(name))).await {
            Ok(()) => session.console.say(name)?,
            Err(error) if names.len() == 1 => return Err(error),
            Err(error) => {
                session.console.error(&error);
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(0),
        failed => Err(Error::Partly { what: "template rm".into(), failed, total: names.len() }),
    }
}
