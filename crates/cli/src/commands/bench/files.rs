//! `bench files`: one large file up and down, beside the same bytes over a plain loopback connection.

use super::contest::Report;
use super::loopback::Loopback;
use super::surface::{self, Surface, Wanted};
use crate::args;
use crate::client::Client;
use crate::client::files::Files;
use crate::console::Console;
use crate::error::Error;
use crate::output::{self, Format};
use bytes::Bytes;
use clap::Args;
use cofferdam_core::SandboxId;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde::Serialize;
use std::time::Instant;

/// Life of the sandbox, in seconds.
const LIFE_SECONDS: u64 = 1800;
const CHUNK_BYTES: usize = 256 * 1024;
const PATH: &str = "/tmp/cofferdam-bench";

#[derive(Debug, Args)]
pub(super) struct FilesArgs {
    /// Size of the file, for example 256M or 1G
    #[arg(long, value_name = "SIZE", value_parser = args::mebibytes, default_value = "256M")]
    size: u32,
    /// How often
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 5)]
    n: usize,
    /// Template to start from
    #[arg(long, value_name = "NAME", default_value = "base")]
    template: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    mib: u32,
    rounds: usize,
    /// Median, in 10^6 bytes a second.
    mb_per_second: f64,
    /// The same over a plain loopback connection.
    loopback_mb_per_second: f64,
    ratio: f64,
}

pub(super) async fn files(client: Client, console: &mut Console, args: FilesArgs) -> Result<u8, Error> {
    let wanted = Wanted { template: args.template.clone(), timeout_seconds: LIFE_SECONDS };
    let subject = surface::create(&client, Surface::Native, &wanted).await?;
    let rows = measure(&client, &subject.id, &args).await;
    client.kill(&subject.id).await?;
    let report = Report::new("files", rows?);
    if args.format.json {
        output::json(console, &report)?;
    } else {
        let rows = report.results.iter().map(|row| {
            [
                row.what.to_owned(),
                row.mib.to_string(),
                format!("{:.0}", row.mb_per_second),
                format!("{:.0}", row.loopback_mb_per_second),
                format!("{:.2}", row.ratio),
            ]
        });
        output::table(console, ["WHAT", "MIB", "MB/S", "LOOPBACK MB/S", "RATIO"], rows)?;
    }
    Ok(0)
}

async fn measure(client: &Client, id: &SandboxId, args: &FilesArgs) -> Result<Vec<Row>, Error> {
    let bytes = u64::from(args.size) * 1024 * 1024;
    let loopback = Loopback::start(bytes).map_err(Error::local("listen on the loopback"))?;
    let plain = Client::new(&loopback.url(), client.key().clone())?;
    let ours = Files { client: client.clone(), sandbox: id.clone(), user: None };
    let plain = Files { client: plain, ..ours.clone() };
    let mut speeds: [Vec<f64>; 4] = Default::default();
    for _ in 0..args.n.max(1) {
        speeds[0].push(up(&ours, bytes).await?);
        speeds[1].push(up(&plain, bytes).await?);
        speeds[2].push(down(&ours, bytes).await?);
        speeds[3].push(down(&plain, bytes).await?);
    }
    let [up_ours, up_plain, down_ours, down_plain] = speeds.map(median);
    let row = |what, ours: f64, plain: f64| Row {
        what,
        mib: args.size,
        rounds: args.n.max(1),
        mb_per_second: ours,
        loopback_mb_per_second: plain,
        ratio: ours / plain,
    };
    Ok(vec![row("upload", up_ours, up_plain), row("download", down_ours, down_plain)])
}

async fn up(files: &Files, bytes: u64) -> Result<f64, Error> {
    let pattern: Vec<u8> = (0..=250).cycle().take(CHUNK_BYTES).collect();
    let chunk = Bytes::from(pattern);
    let chunks = (0..bytes / CHUNK_BYTES as u64).map(move |_| Ok(Frame::data(chunk.clone())));
    let body = StreamBody::new(futures::stream::iter(chunks)).boxed_unsync();
    let start = Instant::now();
    files.write(PATH, 0o644, (bytes, body)).await?;
    Ok(speed(bytes, start))
}

async fn down(files: &Files, bytes: u64) -> Result<f64, Error> {
    let broken = |source| Error::Broken { what: "download".into(), source };
    let start = Instant::now();
    let mut body = files.read(PATH).await?;
    let mut got = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(error.into()))?;
        got += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    if got == bytes {
        Ok(speed(bytes, start))
    } else {
        Err(broken(format!("{got} of {bytes} bytes came").into()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a speed")]
fn speed(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_loopback_takes_and_gives_every_byte() {
        let bytes = 3 * 1024 * 1024;
        let loopback = Loopback::start(bytes).unwrap();
        let key = cofferdam_core::secret::Secret::new("k".into());
        let client = Client::new(&loopback.url(), key).unwrap();
        let files = Files { client, sandbox: "iabc".parse().unwrap(), user: None };
        for _ in 0..2 {
            assert!(up(&files, bytes).await.unwrap() > 0.0);
            assert!(down(&files, bytes).await.unwrap() > 0.0);
        }
    }
}
