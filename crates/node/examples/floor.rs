//! Measures the steps of the container driver on this host: `floor DIR TEMPLATE [ROUNDS]`, as root. Everything it
//! makes is below DIR, in a mount namespace of its own, and removed at the end.

#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]

use anyhow::{Context, bail};
use cofferdam_core::Resources;
use cofferdam_node::isolation::container::{AGENT, ContainerConfig, ContainerDriver, LauncherCommand};
use cofferdam_node::isolation::{Driver, Fill, Live, Slot};
use cofferdam_node::launcher::launcher_main;
use cofferdam_node::storage::VolumeConfig;
use cofferdam_proto::{frame, guest};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|argument| argument == "launcher") {
        launcher_main(cofferdam_sys::helper::inherited_socket()?);
    }
    let [_, directory, template, rest @ ..] = arguments.as_slice() else {
        bail!("usage: floor DIR TEMPLATE [ROUNDS]")
    };
    let rounds = rest.first().map_or(Ok(100), |text| text.parse())?;
    let template = std::fs::canonicalize(template)?;
    let program = std::env::current_exe()?;
    cofferdam_sys::clone::unshare_mounts()?;
    std::fs::create_dir_all(directory)?;
    std::env::set_current_dir(directory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let config = ContainerConfig {
            instance: "floor".into(),
            volume: VolumeConfig {
                image: "node/data.btrfs".into(),
                mount_point: "node/data".into(),
                size_bytes: 8 << 30,
            },
            launcher: LauncherCommand { program, arguments: vec!["launcher".into()] },
            agent: AGENT,
        };
        let driver = ContainerDriver::start(config).await?;
        for slot in driver.slots()? {
            driver.destroy(slot).await?;
        }
        measure(&driver, &template, rounds).await?;
        wide(Arc::new(driver.clone()), &template, 400, 50).await?;
        driver.remove_shared();
        anyhow::Ok(())
    })?;
    std::fs::remove_dir_all("run")?;
    Ok(())
}

struct Series(&'static str, Vec<Duration>);

impl Series {
    fn print(mut self) {
        self.1.sort_unstable();
        let at = |percent: usize| self.1[(self.1.len() - 1) * percent / 100].as_micros();
        println!("{:32} median {:>7} us  min {:>7}  p95 {:>7}", self.0, at(50), at(0), at(95));
    }
}

fn fill(template: &Path) -> Fill {
    Fill { template_root: PathBuf::from(template), resources: Resources::default() }
}

/// Asks the agent for an answer; a stand-in that only accepts is measured up to its accept.
fn ping(live: &Live) -> anyhow::Result<()> {
    let mut socket = UnixStream::connect(live.agent_socket()).context("connect to the agent")?;
    let call = guest::Call { version: guest::VERSION, request: guest::Request::Ping };
    socket.write_all(&frame::encode(frame::Channel::Control, &guest::encode(&call))?)?;
    let mut header = [0; frame::HEADER_BYTES];
    socket.read_exact(&mut header).context("read from the agent")?;
    Ok(())
}

async fn measure(driver: &ContainerDriver, template: &Path, rounds: usize) -> anyhow::Result<()> {
    let names = [
        "park",
        "fill",
        "fill to answer of the agent",
        "limit",
        "usage",
        "set the host name",
        "destroy",
        "cold: park to answer",
    ];
    let mut series = names.map(|name| Series(name, Vec::new()));
    for round in 0..rounds {
        let slot = Slot::new(u32::try_from(round)? % 7)?;
        let start = Instant::now();
        let parked = driver.park(slot).await?;
        let parked_at = Instant::now();
        let live = driver.fill(parked, fill(template)).await?;
        let filled_at = Instant::now();
        ping(&live)?;
        let answered_at = Instant::now();
        driver.limit(&live, &Resources { memory_mib: 256, ..Resources::default() })?;
        let limited_at = Instant::now();
        driver.usage(&live)?;
        let used_at = Instant::now();
        driver.set_hostname(&live, "floor")?;
        let named_at = Instant::now();
        driver.destroy(slot).await?;
        let spans = [
            parked_at - start,
            filled_at - parked_at,
            answered_at - parked_at,
            limited_at - answered_at,
            used_at - limited_at,
            named_at - used_at,
            named_at.elapsed(),
            answered_at - start,
        ];
        for (series, span) in series.iter_mut().zip(spans) {
            series.1.push(span);
        }
    }
    series.into_iter().for_each(Series::print);
    Ok(())
}

async fn wide(driver: Arc<ContainerDriver>, template: &Path, count: u32, width: u32) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut tasks = Vec::new();
    for worker in 0..width {
        let (driver, template) = (Arc::clone(&driver), template.to_owned());
        tasks.push(tokio::spawn(async move {
            for round in 0..count / width {
                let slot = Slot::new(1000 + worker + round * width)?;
                let parked = driver.park(slot).await?;
                let live = driver.fill(parked, fill(&template)).await?;
                tokio::task::spawn_blocking(move || ping(&live)).await??;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let span = start.elapsed();
    println!("{count} cold creates, {width} wide: {:.0} a second", f64::from(count) / span.as_secs_f64());
    let start = Instant::now();
    for slot in driver.slots()? {
        driver.destroy(slot).await?;
    }
    println!(
        "{count} destroys, one by one: {:.0} a second",
        f64::from(count) / start.elapsed().as_secs_f64()
    );
    Ok(())
}
