//! The use cases against a fake node.

use super::*;
use crate::guest::Output;
use crate::testing::{World, eventually};
use cofferdam_core::{ErrorKind, LimitKind, State};
use cofferdam_policy::{Quota, Scope, Scopes};
use cofferdam_proto::guest::{Exec, Path, Reason, Selector, SignalScope, Stdio, User};
use cofferdam_proto::node::{EndReason, ImportFormat};
use std::collections::BTreeMap;

fn exec(cmd: &str, args: &[&str]) -> Exec {
    Exec {
        cmd: cmd.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: BTreeMap::from([("SECRET".to_owned(), "hidden value".to_owned())]),
        cwd: None,
        user: User::Default,
        stdio: Stdio::Pipes,
        tag: None,
        timeout_ms: None,
        kill_on_disconnect: false,
    }
}

fn path(path: &str) -> Path {
    Path { path: path.to_owned(), user: User::Default }
}

async fn output(command: &mut Command) -> (String, Option<i32>) {
    let mut text = String::new();
    loop {
        match command.next().await.unwrap().unwrap() {
            Output::Stdout(bytes) | Output::Stderr(bytes) | Output::Pty(bytes) => {
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            Output::Exited(exit) => return (text, exit.code),
        }
    }
}

async fn tenant(world: &World, name: &str) -> Actor {
    let (_, _, key) = world.app.create_tenant(&world.actor, name, Quota::default()).await.unwrap();
    world.app.authenticate(key.expose()).await.unwrap()
}

#[tokio::test]
async fn a_sandbox_is_running_when_create_returns_and_gone_when_kill_returns() {
    let world = World::new().await;
    let view = world.create().await;
    assert_eq!((view.state, world.node.sandboxes()), (State::Running, vec![view.id.clone()]));
    assert!(world.app.live(&view.id).is_some());
    let page = world.app.list_sandboxes(&world.actor, ListFilter::default()).await.unwrap();
    assert_eq!((page.sandboxes.len(), page.running), (1, 1));
    world.app.kill_sandbox(&world.actor, &view.id).await.unwrap();
    assert_eq!(world.node.sandboxes(), []);
    assert!(world.app.live(&view.id).is_none());
    let page = world.app.list_sandboxes(&world.actor, ListFilter::default()).await.unwrap();
    assert_eq!((page.sandboxes.len(), page.running), (0, 0));
    let again = world.app.kill_sandbox(&world.actor, &view.id).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound);
    let events = ["sandbox_create_requested", "sandbox_created", "sandbox_kill_requested", "sandbox_ended"];
    assert_eq!(world.events(&view.id), events);
    world.verify();
}

#[tokio::test]
async fn the_token_of_a_sandbox_fires_after_it_is_forgotten() {
    let world = World::new().await;
    let view = world.create().await;
    let live = world.app.live(&view.id).unwrap();
    let app = world.app.clone();
    let ended = live.ended().clone();
    let seen = tokio::spawn(async move {
        ended.cancelled().await;
        app.live(&view.id).is_none()
    });
    world.app.kill_sandbox(&world.actor, &live.id).await.unwrap();
    assert!(seen.await.unwrap());
}

#[tokio::test]
async fn what_is_asked_for_reaches_the_node() {
    let world = World::new().await;
    let request = CreateSandbox {
        env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
        timeout_seconds: Some(60),
        resources: cofferdam_proto::api::ResourceOverrides { memory_mib: Some(64), ..Default::default() },
        ..CreateSandbox::default()
    };
    let view = world.app.create_sandbox(&world.actor, request).await.unwrap();
    let spec = world.node.spec(&view.id).unwrap();
    assert_eq!(spec.env["A"], "1");
    assert_eq!(spec.env["FROM_TEMPLATE"], "base");
    assert_eq!(spec.resources.memory_mib, 64);
    assert_eq!(spec.expires_at, view.expires_at);
    assert_eq!(view.expires_at.millis_since(view.started_at), 60_000);
    assert!(view.access_token.is_none());
}

#[tokio::test]
async fn absurd_requests_are_refused_before_anything_is_recorded_as_wished() {
    let world = World::new().await;
    let check = async |request: CreateSandbox, field: &str| {
        let error = world.app.create_sandbox(&world.actor, request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.public().starts_with(&format!("`{field}`")), "{}", error.public());
    };
    let huge = cofferdam_proto::api::ResourceOverrides { processes: Some(u32::MAX), ..Default::default() };
    check(CreateSandbox { resources: huge, ..Default::default() }, "resources").await;
    check(CreateSandbox { timeout_seconds: Some(0), ..Default::default() }, "timeout").await;
    check(CreateSandbox { timeout_seconds: Some(u64::MAX), ..Default::default() }, "timeout").await;
    let bad = BTreeMap::from([("A=B".to_owned(), String::new())]);
    check(CreateSandbox { env: bad, ..Default::default() }, "env").await;
    let large = BTreeMap::from([("k".to_owned(), "v".repeat(20_000))]);
    check(CreateSandbox { metadata: large, ..Default::default() }, "metadata").await;
    assert_eq!(world.node.create_calls(), 0);
}

#[tokio::test]
async fn unknown_templates_and_tags_have_the_words_of_the_contract() {
    let world = World::new().await;
    let check = async |template: &str, expected: Result<(), &str>| {
        let request = CreateSandbox { template: Some(template.to_owned()), ..CreateSandbox::default() };
        let result = world.app.create_sandbox(&world.actor, request).await;
        assert_eq!(result.map(|_| ()).map_err(|e| e.public()), expected.map_err(str::to_owned));
    };
    check("nope", Err("template 'nope' not found")).await;
    check("base:v9", Err("tag 'v9' does not exist for template 'base'")).await;
    check("other/base", Err("template 'other/base' not found")).await;
    check("base:latest", Ok(())).await;
    check(
        &format!("{}/base:default", world.actor.tenant),
        Err(&format!("template '{}/base:default' not found", world.actor.tenant)),
    )
    .await;
}

#[tokio::test]
async fn a_template_that_the_node_made_later_is_found() {
    let world = World::new().await;
    world.create().await;
    let info = world.node.add_template("late");
    for reference in ["late", info.id.as_str()] {
        let request = CreateSandbox { template: Some(reference.to_owned()), ..CreateSandbox::default() };
        assert_eq!(world.app.create_sandbox(&world.actor, request).await.unwrap().template.name, "late");
    }
}

#[tokio::test]
async fn of_many_creates_at_once_exactly_the_quota_succeeds() {
    let quota = Quota { sandboxes_max: 5, ..Quota::default() };
    let world = World::with_quota(quota).await;
    let tries = (0..20).map(|_| {
        let (app, actor) = (world.app.clone(), world.actor.clone());
        tokio::spawn(async move { app.create_sandbox(&actor, CreateSandbox::default()).await })
    });
    let mut made = 0;
    for result in futures::future::join_all(tries).await {
        match result.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ResourceExhausted),
        }
    }
    assert_eq!((made, world.node.sandboxes().len()), (5, 5));
    let one = world.node.sandboxes().remove(0);
    world.app.kill_sandbox(&world.actor, &one).await.unwrap();
    world.create().await;
}

#[tokio::test]
async fn a_create_that_the_node_refuses_leaves_nothing() {
    let world = World::new().await;
    world.node.refuse_creates(Some(ErrorKind::ResourceExhausted));
    let idempotency = Some(Idempotency { key: "k".to_owned(), body_hash: [1; 32] });
    let request = CreateSandbox { idempotency, ..CreateSandbox::default() };
    let error = world.app.create_sandbox(&world.actor, request.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(world.app.all_live().len(), 0);
    world.node.refuse_creates(None);
    world.app.create_sandbox(&world.actor, request).await.unwrap();
}

#[tokio::test]
async fn the_same_key_and_request_make_one_sandbox() {
    let world = World::new().await;
    let request = |hash: u8| CreateSandbox {
        idempotency: Some(Idempotency { key: "k".to_owned(), body_hash: [hash; 32] }),
        ..CreateSandbox::default()
    };
    let first = world.app.create_sandbox(&world.actor, request(1)).await.unwrap();
    let second = world.app.create_sandbox(&world.actor, request(1)).await.unwrap();
    assert_eq!((first.id, first.expires_at), (second.id, second.expires_at));
    let other = world.app.create_sandbox(&world.actor, request(2)).await.unwrap_err();
    assert!(matches!(other, AppError::IdempotencyMismatch));
    assert_eq!(world.node.sandboxes().len(), 1);
    world.advance(25 * 3600);
    world.app.create_sandbox(&world.actor, request(2)).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_killed_while_it_is_made_never_runs() {
    let world = World::new().await;
    world.create().await;
    let hold = world.node.hold_creates();
    let id = world.app.new_sandbox_id();
    let making = {
        let (app, actor) = (world.app.clone(), world.actor.clone());
        let request = CreateSandbox { id: Some(id.clone()), ..CreateSandbox::default() };
        tokio::spawn(async move { app.create_sandbox(&actor, request).await })
    };
    eventually(async || world.app.all_live().len() == 2).await;
    assert!(world.app.live(&id).is_none());
    world.app.kill_sandbox(&world.actor, &id).await.unwrap();
    hold.notify_waiters();
    hold.notify_one();
    assert!(matches!(making.await.unwrap(), Err(AppError::SandboxEnded(_))));
    assert_eq!(world.node.sandboxes().len(), 1);
    let view = world.app.sandbox(&world.actor, &id).await.unwrap();
    assert_eq!((view.state, view.reason.as_deref()), (State::Killed, Some("killed")));
}

#[tokio::test]
async fn deadlines_move_to_the_microsecond_and_extending_never_shortens() {
    let world = World::new().await;
    let view = world.create().await;
    let longer = world.app.extend_timeout(&world.actor, &view.id, 1000).await.unwrap();
    assert!(longer.expires_at > view.expires_at);
    let same = world.app.extend_timeout(&world.actor, &view.id, 10).await.unwrap();
    assert_eq!(same.expires_at, longer.expires_at);
    assert_eq!(world.node.expires_at(&view.id), Some(longer.expires_at));
    let shorter = world.app.set_timeout(&world.actor, &view.id, 1).await.unwrap();
    assert!(shorter.expires_at < view.expires_at);
    assert_eq!(world.app.sandbox(&world.actor, &view.id).await.unwrap().expires_at, shorter.expires_at);
    assert_eq!(world.node.expires_at(&view.id), Some(shorter.expires_at));
}

#[tokio::test]
async fn an_end_that_the_node_reports_is_known_everywhere() {
    let world = World::new().await;
    for (reason, state, text) in
        [(EndReason::Expired, State::Killed, "expired"), (EndReason::AgentDied, State::Failed, "agent_died")]
    {
        let view = world.create().await;
        let live = world.app.live(&view.id).unwrap();
        world.node.end(&view.id, reason).await;
        live.ended().cancelled().await;
        assert!(world.app.live(&view.id).is_none());
        eventually(async || world.events(&view.id).last().is_some_and(|last| last == "sandbox_ended")).await;
        let ended = world.app.sandbox(&world.actor, &view.id).await.unwrap();
        assert_eq!((ended.state, ended.reason.as_deref()), (state, Some(text)));
    }
}

#[tokio::test]
async fn rows_and_node_agree_again_after_a_loss_of_the_connection() {
    let world = World::new().await;
    let (kept, lost) = (world.create().await, world.create().await);
    let mut stray = world.node.spec(&kept.id).unwrap();
    stray.id = "istray".parse().unwrap();
    world.node.close();
    world.node.lose(&lost.id);
    world.node.plant(stray);
    world.node.open();
    eventually(async || world.node.sandboxes() == [kept.id.clone()]).await;
    eventually(async || world.app.sandbox(&world.actor, &lost.id).await.unwrap().state == State::Failed)
        .await;
    assert!(world.app.live(&kept.id).is_some());
    assert!(world.app.live(&lost.id).is_none());
}

#[tokio::test]
async fn a_create_survives_the_loss_of_the_connection_and_makes_one_sandbox() {
    let world = World::new().await;
    world.create().await;
    world.node.close();
    let making = {
        let (app, actor) = (world.app.clone(), world.actor.clone());
        tokio::spawn(async move { app.create_sandbox(&actor, CreateSandbox::default()).await })
    };
    eventually(async || world.app.all_live().len() == 2).await;
    world.node.open();
    let view = making.await.unwrap().unwrap();
    assert!(world.node.sandboxes().contains(&view.id));
    assert_eq!(world.node.sandboxes().len(), 2);
}

#[tokio::test]
async fn a_new_process_takes_over_what_the_old_one_left() {
    let world = World::new().await;
    let (kept, lost) = (world.create().await, world.create().await);
    world.node.lose(&lost.id);
    let world = world.restart().await;
    assert_eq!(world.app.live(&kept.id).unwrap().access_token, kept.access_token);
    eventually(async || world.app.live(&lost.id).is_none()).await;
    let agent = world.app.agent(&world.actor, &kept.id).await.unwrap();
    assert_eq!(output(&mut agent.exec(exec("echo", &["hi"])).await.unwrap()).await.0, "hi\n");
    world.verify();
}

#[tokio::test]
async fn wishes_of_a_process_that_was_killed_get_an_outcome() {
    let world = World::new().await;
    let view = world.create().await;
    // A request whose answer never comes, as the record of a killed process ends.
    let entry = world.app.entry(&world.actor, Some(&view.id));
    let wish = cofferdam_audit::Event::FileReadRequested { path: "/x".to_owned(), user: None };
    let intent = world.app.0.journal.append(world.app.now(), &entry, &wish).unwrap();
    let world = world.restart().await;
    eventually(async || {
        let last = world.record(&view.id).pop().unwrap();
        last.event == "outcome_unknown" && last.fields["intent"] == intent
    })
    .await;
}

#[tokio::test]
async fn a_command_is_recorded_from_wish_to_end_without_the_values_of_its_environment() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let mut command = agent.exec(exec("echo", &["hello", "there"])).await.unwrap();
    assert_eq!(output(&mut command).await, ("hello there\n".to_owned(), Some(0)));
    assert!(command.next().await.unwrap().is_none());
    let record = world.record(&view.id);
    let events: Vec<_> = record[2..].iter().map(|row| row.event.as_str()).collect();
    assert_eq!(events, ["command_requested", "command_started", "command_finished"]);
    assert_eq!(record[2].fields["argv"], serde_json::json!(["echo", "hello", "there"]));
    assert_eq!(record[2].fields["env_names"], serde_json::json!(["SECRET"]));
    assert_eq!(record[4].fields["intent"], record[2].seq);
    assert_eq!(record[4].fields["output_bytes"], 12);
    assert!(!format!("{record:?}").contains("hidden value"));
}

#[tokio::test]
async fn a_command_that_does_not_start_is_recorded_too() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let error = agent.exec(exec("missing", &[])).await.err().unwrap();
    assert_eq!((error.kind(), error.public().as_str()), (ErrorKind::NotFound, "no such program"));
    assert_eq!(world.events(&view.id)[2..], ["command_requested", "command_failed"]);
}

#[tokio::test]
async fn the_end_of_a_command_is_recorded_when_its_client_has_gone() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let detached = agent.exec(exec("forever", &[])).await.unwrap();
    let pid = detached.pid();
    drop(detached);
    assert_eq!(agent.processes().await.unwrap().len(), 1);
    agent.signal(Selector::Pid(pid), 9, SignalScope::Process).await.unwrap();
    eventually(async || world.events(&view.id).last().is_some_and(|last| last == "command_finished")).await;
    let killed = agent.exec(Exec { kill_on_disconnect: true, ..exec("forever", &[]) }).await.unwrap();
    drop(killed);
    let finished = async || world.events(&view.id).iter().filter(|e| *e == "command_finished").count() == 2;
    eventually(finished).await;
    assert_eq!(agent.processes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn killing_a_sandbox_breaks_its_commands_off() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let mut command = agent.exec(exec("forever", &[])).await.unwrap();
    let (killed, next) = tokio::join!(world.app.kill_sandbox(&world.actor, &view.id), command.next());
    killed.unwrap();
    assert!(matches!(next, Err(AppError::SandboxEnded(_))));
    assert!(matches!(agent.exec(exec("echo", &[])).await, Err(AppError::SandboxEnded(_))));
    assert!(world.events(&view.id).contains(&"command_lost".to_owned()));
    let error = world.app.agent(&world.actor, &view.id).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn nonsense_from_an_agent_breaks_only_that_operation() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let mut command = agent.exec(exec("garbage", &[])).await.unwrap();
    assert!(matches!(command.next().await, Err(AppError::AgentLost(_))));
    assert_eq!(output(&mut agent.exec(exec("echo", &["still"])).await.unwrap()).await.0, "still\n");
}

#[tokio::test]
async fn input_reaches_a_command() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let mut command = agent.exec(exec("cat", &[])).await.unwrap();
    let input = command.input();
    input.write(b"one ").await.unwrap();
    input.write(&[b'x'; 200_000]).await.unwrap();
    input.close().await.unwrap();
    let (text, code) = output(&mut command).await;
    assert_eq!((text.len(), code), (200_004, Some(0)));
}

#[tokio::test]
async fn files_go_up_and_down_and_every_change_is_recorded() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let content = vec![42; 300_000];
    let mut upload = agent.write(path("/w/a"), BTreeMap::new(), 0o644).await.unwrap();
    for chunk in content.chunks(70_000) {
        upload.write(chunk).await.unwrap();
    }
    assert_eq!(upload.finish().await.unwrap().size, 300_000);
    let mut file = agent.read(path("/w/a"), 0, None).await.unwrap();
    let mut read = Vec::new();
    while let Some(bytes) = file.next().await.unwrap() {
        read.extend_from_slice(&bytes);
    }
    assert_eq!(read, content);
    for name in ["/w/b", "/w/c"] {
        agent.write(path(name), BTreeMap::new(), 0o644).await.unwrap().finish().await.unwrap();
    }
    assert_eq!(agent.list_dir(path("/w"), 1).await.unwrap().len(), 3);
    agent.rename(path("/w/a"), "/w/d".to_owned()).await.unwrap();
    agent.remove(path("/w/d")).await.unwrap();
    assert_eq!(agent.stat(path("/w/d")).await.unwrap_err().kind(), ErrorKind::NotFound);
    drop(agent.write(path("/w/e"), BTreeMap::new(), 0o644).await.unwrap());
    let changes = |event: &str| world.events(&view.id).iter().filter(|e| *e == event).count();
    assert_eq!(
        (changes("file_change_requested"), changes("file_changed"), changes("file_failed")),
        (6, 5, 1)
    );
    let wrote = world.record(&view.id).into_iter().find(|row| row.event == "file_changed").unwrap();
    assert_eq!(wrote.fields["bytes"], 300_000);
}

#[tokio::test]
async fn a_write_that_the_sandbox_breaks_off_says_why() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    let mut upload = agent.write(path("/full"), BTreeMap::new(), 0o644).await.unwrap();
    let error = loop {
        if let Err(error) = upload.write(&[0; 50_000]).await {
            break error;
        }
    };
    assert_eq!((error.kind(), error.reason()), (ErrorKind::ResourceExhausted, Reason::NoSpace));
    let hit = error.limit().unwrap();
    assert_eq!((hit.limit, hit.configured), (LimitKind::Disk, 1024 * 1024 * 1024));
}

#[tokio::test]
async fn a_port_speaks_first_and_not_a_byte_is_lost() {
    use tokio::io::AsyncReadExt;
    let world = World::new().await;
    let view = world.create().await;
    let live = world.app.live(&view.id).unwrap();
    let agent = world.app.agent_for(live, Caller::Token);
    let mut stream = agent.dial(8080).await.unwrap();
    let mut greeting = [0; 16];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello from 8080\n");
    assert_eq!(agent.dial(1).await.unwrap_err().reason(), Reason::PortClosed);
}

#[tokio::test]
async fn two_tenants_never_see_each_others_objects() {
    let world = World::new().await;
    let other = tenant(&world, "other").await;
    let view = world.create().await;
    let id = &view.id;
    let app = &world.app;
    let kinds = [
        app.sandbox(&other, id).await.err().unwrap().kind(),
        app.kill_sandbox(&other, id).await.err().unwrap().kind(),
        app.set_timeout(&other, id, 5).await.err().unwrap().kind(),
        app.extend_timeout(&other, id, 5000).await.err().unwrap().kind(),
        app.agent(&other, id).await.err().unwrap().kind(),
        app.usage(&other, id).await.err().unwrap().kind(),
        app.logs(&other, id, 0, 10).await.err().unwrap().kind(),
        app.revoke_key(&other, &world.actor.key).await.err().unwrap().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::NotFound; 8]);
    assert_eq!(app.list_sandboxes(&other, ListFilter::default()).await.unwrap().sandboxes.len(), 0);
    assert!(app.live(id).is_some());
    let denied = app.create_tenant(&other, "third", Quota::default()).await.err().unwrap();
    assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say_until_it_is_revoked() {
    let world = World::new().await;
    let scopes: Scopes = [Scope::SandboxesRead, Scope::Keys].into_iter().collect();
    let (view, key) = world.app.create_key(&world.actor, "reader", Some(scopes)).await.unwrap();
    let reader = world.app.authenticate(key.expose()).await.unwrap();
    world.app.list_sandboxes(&reader, ListFilter::default()).await.unwrap();
    let denied = world.app.create_sandbox(&reader, CreateSandbox::default()).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
    let wider = world.app.create_key(&reader, "wider", Some(Scopes::ALL)).await.err().unwrap();
    assert_eq!(wider.kind(), ErrorKind::InvalidArgument);
    assert!(!format!("{:?}", world.app.keys(&world.actor).await.unwrap()).contains(&key.expose()[9..]));
    world.app.revoke_key(&world.actor, &view.id).await.unwrap();
    assert!(matches!(world.app.authenticate(key.expose()).await, Err(AppError::Unauthenticated)));
    assert_eq!(world.app.keys(&world.actor).await.unwrap().len(), 1);
}

#[tokio::test]
async fn lists_are_filtered_ordered_and_cut_into_pages() {
    let world = World::new().await;
    for number in 0..5 {
        let metadata = BTreeMap::from([
            ("parity".to_owned(), (number % 2).to_string()),
            ("a \"b.c\"".to_owned(), "$x".to_owned()),
        ]);
        world
            .app
            .create_sandbox(&world.actor, CreateSandbox { metadata, ..Default::default() })
            .await
            .unwrap();
    }
    let list = async |filter: ListFilter| world.app.list_sandboxes(&world.actor, filter).await.unwrap();
    let all = list(ListFilter { ascending: true, ..Default::default() }).await;
    let ids: Vec<_> = all.sandboxes.iter().map(|s| s.id.clone()).collect();
    assert_eq!((ids.len(), all.next.as_ref()), (5, None));
    let mut paged = Vec::new();
    let mut page = None;
    loop {
        let next = list(ListFilter { limit: 2, page, ..Default::default() }).await;
        assert_eq!(next.running, 5);
        paged.extend(next.sandboxes.into_iter().map(|s| s.id));
        page = next.next;
        if page.is_none() {
            break;
        }
    }
    paged.reverse();
    assert_eq!(paged, ids);
    let odd =
        BTreeMap::from([("parity".to_owned(), "1".to_owned()), ("a \"b.c\"".to_owned(), "$x".to_owned())]);
    let odd = list(ListFilter { metadata: odd, ..Default::default() }).await;
    assert_eq!((odd.sandboxes.len(), odd.running), (2, 2));
    let after = Some(all.sandboxes[3].started_at);
    assert_eq!(list(ListFilter { started_after: after, ..Default::default() }).await.sandboxes.len(), 2);
    let template = Some("nope".to_owned());
    assert_eq!(list(ListFilter { template, ..Default::default() }).await.sandboxes.len(), 0);
    let wrong = world.app.list_sandboxes(&world.actor, ListFilter { limit: 0, ..Default::default() }).await;
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

fn content(
    parts: &[Result<&'static [u8], ()>],
) -> impl futures::Stream<Item = std::io::Result<bytes::Bytes>> + use<> {
    let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let parts: Vec<_> =
        parts.iter().map(|p| p.map(bytes::Bytes::from_static).map_err(|()| broken())).collect();
    futures::stream::iter(parts)
}

#[tokio::test]
async fn templates_are_imported_used_and_removed_by_their_owner_only() {
    let world = World::new().await;
    let other = tenant(&world, "other").await;
    let (progress, mut steps) = tokio::sync::mpsc::channel(8);
    let import = |parts| {
        world.app.import_template(&world.actor, ("mine", ImportFormat::Rootfs), parts, progress.clone())
    };
    let info = import(content(&[Ok(b"first "), Ok(b"build")])).await.unwrap();
    assert_eq!((info.size_bytes, steps.recv().await.unwrap().done), (11, 11));
    let newer = import(content(&[Ok(b"second build")])).await.unwrap();
    assert_eq!((&newer.id, newer.digest != info.digest), (&info.id, true));
    assert!(world.app.template(&other, "mine").await.is_err());
    assert!(world.app.template(&other, "base").await.is_ok());
    let request = CreateSandbox { template: Some("mine".to_owned()), ..CreateSandbox::default() };
    let view = world.app.create_sandbox(&world.actor, request).await.unwrap();
    let in_use = world.app.remove_template(&world.actor, "mine").await.unwrap_err();
    assert_eq!(in_use.kind(), ErrorKind::Conflict);
    world.app.kill_sandbox(&world.actor, &view.id).await.unwrap();
    world.app.remove_template(&world.actor, "mine").await.unwrap();
    assert_eq!(world.app.templates(&world.actor).await.unwrap().len(), 1);
    let shared = world.app.remove_template(&world.actor, "base").await.unwrap_err();
    assert_eq!(shared.kind(), ErrorKind::AlreadyExists);
}

#[tokio::test]
async fn an_import_that_breaks_off_leaves_no_template() {
    let world = World::new().await;
    for parts in [content(&[Ok(b"half"), Err(())]), content(&[Ok(b"broken")])] {
        let (progress, _steps) = tokio::sync::mpsc::channel(8);
        let import = ("mine", ImportFormat::Rootfs);
        let error = world.app.import_template(&world.actor, import, parts, progress).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(world.app.template(&world.actor, "mine").await.is_err());
    }
}

#[tokio::test]
async fn nothing_is_done_when_it_cannot_be_recorded() {
    let world = World::new().await;
    let view = world.create().await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    world.break_record();
    assert!(matches!(agent.exec(exec("echo", &[])).await, Err(AppError::Audit(_))));
    assert!(matches!(agent.remove(path("/w")).await, Err(AppError::Audit(_))));
    let refused = world.app.create_sandbox(&world.actor, CreateSandbox::default()).await;
    assert!(matches!(refused, Err(AppError::Audit(_))));
    assert!(matches!(world.app.kill_sandbox(&world.actor, &view.id).await, Err(AppError::Audit(_))));
    assert_eq!(world.node.sandboxes(), [view.id]);
}

#[tokio::test]
async fn logs_are_read_from_a_cursor() {
    let world = World::new().await;
    let view = world.create().await;
    world.create().await;
    let (rows, cursor) = world.app.logs(&world.actor, &view.id, 0, 100).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(),
        ["sandbox_create_requested", "sandbox_created"]
    );
    world.app.kill_sandbox(&world.actor, &view.id).await.unwrap();
    let (rows, _) = world.app.logs(&world.actor, &view.id, cursor, 100).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(),
        ["sandbox_kill_requested", "sandbox_ended"]
    );
}
