//! The native surface against a fake node.

use super::openapi;
use super::routes::{ROUTES, Route, router};
use crate::testing::{World, eventually};
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use cofferdam_core::SandboxId;
use cofferdam_policy::Scopes;
use cofferdam_proto::api::{
    ApiError, CreateKey, CreateSandbox, CreateTenant, ExecMessage, ExecRequest, ExecResult, FilePath,
    MoveFile, NewKey, NewTenant, SetTimeout, TenantQuota, TerminalSize,
};
use futures::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tower::ServiceExt;

struct Reply {
    status: StatusCode,
    bytes: Vec<u8>,
    headers: axum::http::HeaderMap,
}

impl Reply {
    #[track_caller]
    fn json<T: DeserializeOwned>(&self) -> T {
        let parsed = serde_json::from_slice(&self.bytes);
        parsed.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    #[track_caller]
    fn error(&self, status: u16) -> ApiError {
        let error: ApiError = self.json();
        assert_eq!((self.status.as_u16(), error.code), (status, status), "{error:?}");
        error
    }
}

async fn send(world: &World, key: Option<&str>, request: (&str, String, Body)) -> Reply {
    let mut builder = Request::builder().method(request.0).uri(request.1);
    if let Some(key) = key {
        builder = builder.header("X-API-KEY", key);
    }
    let response = router(world.app.clone()).oneshot(builder.body(request.2).unwrap()).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let bytes = to_bytes(response.into_body(), 10_000_000).await.unwrap().to_vec();
    Reply { status, bytes, headers }
}

async fn call(world: &World, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    send(world, Some(world.key.expose()), (method, path.to_owned(), body)).await
}

/// A request to a route that is legal but for who sends it.
fn legal(route: &Route, sandbox: &SandboxId) -> (&'static str, String, Body) {
    let id = match route.path {
        path if path.starts_with("/v1/sandboxes") => sandbox.as_str(),
        "/v1/templates/{name}" if route.method == "GET" => "base",
        path if path.starts_with("/v1/templates") => "mine",
        _ => "x1",
    };
    let mut path = route.path.replace("{id}", id).replace("{name}", id);
    if route.path.contains("/files") && route.shapes.0.is_none() {
        path.push_str("?path=/w/f");
    }
    let body = match route.shapes.0 {
        Some(shape) => sample(shape).to_string(),
        None => String::new(),
    };
    (route.method, path, Body::from(body))
}

fn value<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

/// A request body of that shape with every field.
fn sample(shape: &str) -> Value {
    match shape {
        "CreateSandbox" => json!({ "template": "base", "timeout_seconds": 60, "resources": {},
                                   "env": {}, "metadata": {} }),
        "SetTimeout" => value(&SetTimeout { timeout_seconds: 60 }),
        "ExecRequest" => value(&ExecRequest { argv: vec!["echo".into(), "hi".into()], ..Default::default() }),
        "FilePath" => value(&FilePath { path: "/w/f".into(), user: None }),
        "MoveFile" => value(&MoveFile { source: "/w/f".into(), destination: "/w/g".into(), user: None }),
        "CreateKey" => value(&CreateKey { name: "n".into(), scopes: None }),
        "CreateTenant" => value(&CreateTenant { name: "t".into(), quota: None }),
        "TenantQuota" => value(&TenantQuota { sandboxes_max: 1, cpu_millis_max: 2, memory_mib_max: 3 }),
        other => panic!("no sample of {other}"),
    }
}

#[tokio::test]
async fn every_route_that_needs_a_key_refuses_without_one() {
    let world = World::new().await;
    let view = world.create().await;
    for route in ROUTES.iter().filter(|route| route.action.is_some()) {
        for key in [None, Some("e2b_nonsense"), Some("e2b_0000000000000000000000000000000000000000")] {
            let reply = send(&world, key, legal(route, &view.id)).await;
            assert_eq!(reply.error(401).kind, cofferdam_core::ErrorKind::Unauthenticated, "{}", route.path);
        }
    }
}

#[tokio::test]
async fn every_route_refuses_a_key_without_its_scope() {
    let world = World::new().await;
    let view = world.create().await;
    let (_, key) = world.app.create_key(&world.actor, "none", Some(Scopes::NONE)).await.unwrap();
    for route in ROUTES.iter().filter(|route| route.action.is_some()) {
        let reply = send(&world, Some(key.expose()), legal(route, &view.id)).await;
        let scope = route.action.unwrap().scope();
        assert!(reply.error(403).message.contains(scope.as_str()), "{} {}", route.method, route.path);
    }
}

#[tokio::test]
async fn every_route_of_a_sandbox_knows_none_of_another_tenant() {
    let world = World::new().await;
    let view = world.create().await;
    let (_, _, key) = world.app.create_tenant(&world.actor, "other", Default::default()).await.unwrap();
    for route in ROUTES.iter().filter(|route| route.path.contains("/sandboxes/{id}")) {
        let reply = send(&world, Some(key.expose()), legal(route, &view.id)).await;
        let expected = format!("Sandbox \"{}\" doesn't exist or you don't have access to it", view.id);
        assert_eq!(reply.error(404).message, expected, "{} {}", route.method, route.path);
    }
    assert!(world.app.live(&view.id).is_some());
}

#[tokio::test]
async fn what_a_route_says_about_the_record_is_so() {
    for route in ROUTES.iter().filter(|route| route.audit.is_some() && !route.path.ends_with("/stream")) {
        let world = World::new().await;
        let view = world.create().await;
        let import = ROUTES.iter().find(|r| r.method == "PUT" && r.path == "/v1/templates/{name}").unwrap();
        let imported = send(&world, Some(world.key.expose()), legal(import, &view.id)).await;
        assert_eq!(imported.status, StatusCode::OK);
        let before = world.all_events().len();
        send(&world, Some(world.key.expose()), legal(route, &view.id)).await;
        let after = world.all_events();
        assert_eq!(after.get(before).map(String::as_str), route.audit, "{} {}", route.method, route.path);
    }
}

#[tokio::test]
async fn the_document_has_every_route_and_every_shape_it_names() {
    let world = World::new().await;
    let reply = send(&world, None, ("GET", "/v1/openapi.json".to_owned(), Body::empty())).await;
    let document: Value = reply.json();
    assert_eq!(document, openapi::build());
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
        assert!(operation["summary"].is_string(), "{} {}", route.method, route.path);
    }
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}

/// The value has the properties that the document gives its shape, and no others; absent ones are optional.
#[track_caller]
fn fits(shape: &str, value: &Value) {
    let document = openapi::build();
    let schema = &document["components"]["schemas"][shape];
    let properties = schema["properties"].as_object().expect(shape);
    let present = value.as_object().expect(shape);
    for name in present.keys() {
        assert!(properties.contains_key(name), "{shape} has no {name}");
    }
    for name in schema["required"].as_array().expect(shape) {
        assert!(present.contains_key(name.as_str().unwrap()), "{shape} needs {name}");
    }
}

#[tokio::test]
async fn what_is_answered_has_the_shape_that_the_document_says() {
    let world = World::new().await;
    let view = world.create().await;
    let key = Some(world.key.expose());
    let upload = ("PUT", format!("/v1/sandboxes/{}/files?path=/w/f", view.id), Body::from("content"));
    send(&world, key, upload).await;
    for route in ROUTES.iter().filter(|route| !route.path.contains("{id}/quota")) {
        let (Some(shape), false) = (route.shapes.1, route.method == "DELETE") else { continue };
        let reply = send(&world, key, legal(route, &view.id)).await;
        assert!(reply.status.is_success(), "{} {}", route.path, String::from_utf8_lossy(&reply.bytes));
        let answer: Value = reply.json();
        fits(shape, &answer);
        for (list, element) in [
            ("sandboxes", "Sandbox"),
            ("entries", "Entry"),
            ("templates", "TemplateInfo"),
            ("keys", "Key"),
            ("rows", "LogRow"),
            ("checks", "Check"),
            ("tenants", "Tenant"),
        ] {
            for value in answer[list].as_array().into_iter().flatten() {
                fits(element, value);
            }
        }
    }
    let full = ExecRequest {
        argv: vec![],
        env: Default::default(),
        cwd: Some(String::new()),
        user: Some(String::new()),
        timeout_ms: Some(1),
        stdin: Some(String::new()),
        pty: Some(TerminalSize { cols: 1, rows: 1 }),
    };
    fits("ExecRequest", &value(&full));
    fits(
        "CreateSandbox",
        &value(&CreateSandbox { template: Some("x".into()), timeout_seconds: Some(1), ..Default::default() }),
    );
    for shape in ["SetTimeout", "FilePath", "MoveFile", "CreateKey", "CreateTenant", "TenantQuota"] {
        fits(shape, &sample(shape));
    }
    fits("ApiError", &value(&call(&world, "GET", "/v1/sandboxes/inone", Value::Null).await.error(404)));
}

#[tokio::test]
async fn a_sandbox_is_made_seen_listed_and_ended() {
    let world = World::new().await;
    let body = json!({ "metadata": { "k": "v" }, "resources": { "memory_mib": 256 } });
    let made = call(&world, "POST", "/v1/sandboxes", body).await;
    assert_eq!(made.status, StatusCode::CREATED);
    assert_eq!(made.headers["x-request-id"].len(), 21);
    let made: Value = made.json();
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let seen: Value = call(&world, "GET", &path, Value::Null).await.json();
    assert_eq!(seen, made);
    assert_eq!((&seen["state"], &seen["resources"]["memory_mib"]), (&json!("running"), &json!(256)));
    let list = async |query: &str| {
        let reply = call(&world, "GET", &format!("/v1/sandboxes{query}"), Value::Null).await;
        reply.json::<Value>()["sandboxes"].as_array().unwrap().len()
    };
    assert_eq!((list("").await, list("?state=killed,failed").await), (1, 0));
    assert_eq!(call(&world, "DELETE", &path, Value::Null).await.status, StatusCode::NO_CONTENT);
    assert_eq!((list("").await, list("?state=killed").await), (0, 1));
    call(&world, "DELETE", &path, Value::Null).await.error(404);
    call(&world, "GET", "/v1/sandboxes?state=sleeping", Value::Null).await.error(400);
    call(&world, "GET", "/v1/sandboxes?colour=red", Value::Null).await.error(400);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let world = World::new().await;
    let view = world.create().await;
    let check = async |body: &str, part: &str| {
        let request = ("POST", "/v1/sandboxes".to_owned(), Body::from(body.to_owned()));
        let error = send(&world, Some(world.key.expose()), request).await.error(400);
        assert!(error.message.contains(part), "{} lacks {part}", error.message);
    };
    check("{\"metadata\": {,}}", "line 1 column 15").await;
    check("{\"tempalte\": \"base\"}", "unknown field `tempalte`").await;
    check("{\"timeout_seconds\": -1}", "invalid value").await;
    check("{\"timeout_seconds\": 99999999999}", "`timeout`").await;
    check("{\"resources\": {\"memory_mib\": 1}}", "memory_mib must be between").await;
    check("\u{0}\u{1}", "malformed JSON").await;
    let large = json!({ "metadata": { "k": "v".repeat(2_000_000) } });
    call(&world, "POST", "/v1/sandboxes", large).await.error(413);
    call(&world, "POST", "/v1/sandboxes", json!({ "template": "nope" })).await.error(404);
    call(&world, "PATCH", "/v1/sandboxes", Value::Null).await.error(405);
    call(&world, "GET", "/v1/sandboxes/NOT-AN-ID", Value::Null).await.error(400);
    let exec = format!("/v1/sandboxes/{}/exec", view.id);
    call(&world, "POST", &exec, json!({ "argv": [] })).await.error(400);
    call(&world, "POST", &exec, json!({ "argv": ["sh"], "pty": { "cols": 1, "rows": 1 } })).await.error(400);
    let files = format!("/v1/sandboxes/{}/files", view.id);
    call(&world, "PUT", &format!("{files}?path=/x&mode=999"), Value::Null).await.error(400);
    call(&world, "GET", &format!("{files}?path=/x&depth=2"), Value::Null).await.error(400);
    call(&world, "GET", &files, Value::Null).await.error(400);
    call(&world, "GET", &format!("{files}?path=/none"), Value::Null).await.error(404);
}

#[tokio::test]
async fn an_idempotency_key_counts_here_too() {
    let world = World::new().await;
    let create = async |body: &str| {
        let request = Request::post("/v1/sandboxes").header("X-API-KEY", world.key.expose());
        let request = request.header("Idempotency-Key", "once").body(Body::from(body.to_owned())).unwrap();
        let response = router(world.app.clone()).oneshot(request).await.unwrap();
        (response.status().as_u16(), to_bytes(response.into_body(), 100_000).await.unwrap())
    };
    assert_eq!(create("{}").await, create("{}").await);
    assert_eq!(create("{\"timeout_seconds\":5}").await.0, 422);
    assert_eq!(world.node.sandboxes().len(), 1);
}

#[tokio::test]
async fn a_bearer_token_is_a_key() {
    let world = World::new().await;
    let bearer = format!("Bearer {}", world.key.expose());
    let request = Request::get("/v1/keys").header(header::AUTHORIZATION, bearer).body(Body::empty()).unwrap();
    assert_eq!(router(world.app.clone()).oneshot(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_command_runs_to_its_end() {
    let world = World::new().await;
    let view = world.create().await;
    let path = format!("/v1/sandboxes/{}/exec", view.id);
    let run = async |body: Value| call(&world, "POST", &path, body).await.json::<ExecResult>();
    let echo = run(json!({ "argv": ["echo", "a", "b"] })).await;
    assert_eq!((echo.stdout.as_str(), echo.exit.code, echo.truncated), ("a b\n", Some(0), false));
    let cat = run(json!({ "argv": ["cat"], "stdin": "given" })).await;
    assert_eq!(cat.stdout, "given");
    let much = "x".repeat(900_000);
    let cat = run(json!({ "argv": ["cat"], "stdin": much })).await;
    assert_eq!((cat.stdout.len(), cat.truncated), (900_000, false));
    let complain = run(json!({ "argv": ["complain", "no"] })).await;
    assert_eq!((complain.stderr.as_str(), complain.exit.code), ("no", Some(1)));
    // It ends without reading what it is given.
    assert_eq!(run(json!({ "argv": ["exit", "3"], "stdin": "unread" })).await.exit.code, Some(3));
    call(&world, "POST", &path, json!({ "argv": ["missing"] })).await.error(404);
    let lost = call(&world, "POST", &path, json!({ "argv": ["garbage"] })).await.error(503);
    assert!(lost.request_id.is_some());
    let requests: Vec<_> =
        world.record(&view.id).into_iter().filter(|row| row.event == "command_requested").collect();
    assert_eq!(requests.len(), 7);
}

#[tokio::test]
async fn a_file_goes_up_and_down() {
    let world = World::new().await;
    let view = world.create().await;
    let files = format!("/v1/sandboxes/{}/files", view.id);
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let upload = ("PUT", format!("{files}?path=/w/f&mode=0755"), Body::from(content.clone()));
    assert_eq!(send(&world, Some(world.key.expose()), upload).await.status, StatusCode::OK);
    let down = call(&world, "GET", &format!("{files}?path=/w/f"), Value::Null).await;
    assert_eq!((down.headers["content-length"].to_str().unwrap(), down.bytes == content), ("3000000", true));
    let full = ("PUT", format!("{files}?path=/full"), Body::from(vec![0; 3_000_000]));
    send(&world, Some(world.key.expose()), full).await.error(429);
    let moved =
        call(&world, "POST", &format!("{files}/move"), json!({ "source": "/w/f", "destination": "/w/g" }))
            .await;
    assert_eq!(moved.json::<Value>()["entries"][0]["path"], "/w/g");
    let removed = call(&world, "POST", &format!("{files}/remove"), json!({ "path": "/w/g" })).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT);
    call(&world, "GET", &format!("{files}/stat?path=/w/g"), Value::Null).await.error(404);
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_no_file() {
    let world = World::new().await;
    let view = world.create().await;
    let broken =
        futures::stream::iter([Ok("half"), Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))]);
    let path = format!("/v1/sandboxes/{}/files?path=/w/half", view.id);
    send(&world, Some(world.key.expose()), ("PUT", path.clone(), Body::from_stream(broken))).await.error(400);
    call(&world, "GET", &path, Value::Null).await.error(404);
}

#[tokio::test]
async fn an_import_ends_with_the_template_or_with_what_was_wrong() {
    let world = World::new().await;
    let import = async |name: &str, content: &'static str| {
        let request = ("PUT", format!("/v1/templates/{name}?format=rootfs"), Body::from(content));
        send(&world, Some(world.key.expose()), request).await
    };
    let reply = import("mine", "bytes of a tar").await;
    let text = String::from_utf8(reply.bytes.clone()).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (reply.status.as_u16(), &last["type"], &last["name"]),
        (200, &json!("template"), &json!("mine"))
    );
    let reply = import("other", "broken").await;
    let text = String::from_utf8(reply.bytes).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    // Whether the failure comes before the answer has begun is a matter of time.
    assert!(last["code"] == 400 && last["message"] == "this is no root file system", "{last}");
    import("Not%20A%20Name", "x").await.error(400);
    assert_eq!(
        call(&world, "DELETE", "/v1/templates/mine", Value::Null).await.status,
        StatusCode::NO_CONTENT
    );
    call(&world, "DELETE", "/v1/templates/mine", Value::Null).await.error(404);
}

#[tokio::test]
async fn keys_and_tenants_are_made_and_keys_are_revoked() {
    let world = World::new().await;
    let made = call(&world, "POST", "/v1/keys", json!({ "name": "ci", "scopes": ["sandboxes:read"] })).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let made: NewKey = made.json();
    let list =
        async |key: &str| send(&world, Some(key), ("GET", "/v1/sandboxes".to_owned(), Body::empty())).await;
    assert_eq!(list(&made.secret).await.status, StatusCode::OK);
    call(&world, "POST", "/v1/keys", json!({ "name": "x", "scopes": ["everything"] })).await.error(400);
    let revoked = call(&world, "DELETE", &format!("/v1/keys/{}", made.key.id), Value::Null).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    list(&made.secret).await.error(401);
    let quota = json!({ "sandboxes_max": 1, "cpu_millis_max": 100_000, "memory_mib_max": 100_000 });
    let tenant: NewTenant =
        call(&world, "POST", "/v1/tenants", json!({ "name": "t", "quota": quota })).await.json();
    let create = async || {
        let request = ("POST", "/v1/sandboxes".to_owned(), Body::from("{}"));
        send(&world, Some(&tenant.key.secret), request).await
    };
    assert_eq!(create().await.status, StatusCode::CREATED);
    assert!(create().await.error(429).message.contains("number of sandboxes"));
    let path = format!("/v1/tenants/{}/quota", tenant.tenant.id);
    let raised = json!({ "sandboxes_max": 2, "cpu_millis_max": 100_000, "memory_mib_max": 100_000 });
    assert_eq!(call(&world, "PUT", &path, raised).await.status, StatusCode::NO_CONTENT);
    assert_eq!(create().await.status, StatusCode::CREATED);
}

type Socket = tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>;

async fn connect(world: &World, sandbox: &SandboxId) -> Socket {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = router(world.app.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let uri = format!("ws://{address}/v1/sandboxes/{sandbox}/exec/stream");
    let mut request = uri.into_client_request().unwrap();
    request.headers_mut().insert("X-API-KEY", world.key.expose().parse().unwrap());
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

/// All output and the last text message.
async fn rest(socket: &mut Socket) -> (Vec<u8>, ExecMessage) {
    let mut output = Vec::new();
    let mut last = None;
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Binary(bytes) => output.extend_from_slice(&bytes[1..]),
            Message::Text(text) => last = Some(serde_json::from_str(&text).unwrap()),
            Message::Close(_) => break,
            _ => {}
        }
    }
    (output, last.unwrap())
}

#[tokio::test]
async fn a_live_command_takes_input_and_gives_output() {
    let world = World::new().await;
    let view = world.create().await;
    let mut socket = connect(&world, &view.id).await;
    let pty = json!({ "argv": ["cat"], "pty": { "cols": 80, "rows": 24 } });
    socket.send(Message::text(pty.to_string())).await.unwrap();
    socket.send(Message::binary(&b"typed "[..])).await.unwrap();
    socket
        .send(Message::text(json!({ "type": "resize", "cols": 100, "rows": 30 }).to_string()))
        .await
        .unwrap();
    socket.send(Message::text("nonsense")).await.unwrap();
    socket.send(Message::binary(&b""[..])).await.unwrap();
    let (output, last) = rest(&mut socket).await;
    assert_eq!(String::from_utf8(output).unwrap(), "typed 100x30\n");
    assert!(matches!(last, ExecMessage::Exited(exit) if exit.code == Some(0)));
}

#[tokio::test]
async fn a_live_command_that_cannot_start_says_so() {
    let world = World::new().await;
    let view = world.create().await;
    for (first, code) in [("{\"argv\":[\"missing\"]}", 404), ("{\"argv\":[]}", 400), ("{", 400)] {
        let mut socket = connect(&world, &view.id).await;
        socket.send(Message::text(first)).await.unwrap();
        assert!(matches!(rest(&mut socket).await.1, ExecMessage::Error(error) if error.code == code));
    }
}

#[tokio::test]
async fn a_live_command_is_killed_when_its_client_goes_away() {
    let world = World::new().await;
    let view = world.create().await;
    let mut socket = connect(&world, &view.id).await;
    socket.send(Message::text(json!({ "argv": ["forever"] }).to_string())).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().is_text());
    drop(socket);
    eventually(async || world.events(&view.id).last().is_some_and(|last| last == "command_finished")).await;
    let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
    assert_eq!(agent.processes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_live_command_ends_with_its_sandbox() {
    let world = World::new().await;
    let view = world.create().await;
    let mut socket = connect(&world, &view.id).await;
    socket.send(Message::text(json!({ "argv": ["forever"] }).to_string())).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().is_text());
    world.app.kill_sandbox(&world.actor, &view.id).await.unwrap();
    assert!(matches!(rest(&mut socket).await.1, ExecMessage::Error(error) if error.code == 503));
}
