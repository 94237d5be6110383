//! The E2B surface and the gateway as clients meet them, at a fake node: whole requests in, whole answers out.

use super::*;
use crate::api::e2b::routes::{self, Needs};
use crate::app::{CreateSandbox, SandboxView};
use crate::http::Cut;
use crate::testing::World;
use base64::Engine;
use cofferdam_policy::Quota;
use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Digest;

struct Client {
    gateway: Gateway,
    headers: Vec<(String, String)>,
}

/// Status, headers and body of an answer.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

impl Client {
    fn new(world: &World) -> Self {
        Self { gateway: Gateway::new(world.app.clone(), axum::Router::new()), headers: Vec::new() }
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.push((name.to_owned(), value.to_owned()));
        Self { gateway: self.gateway.clone(), headers }
    }

    fn with_key(world: &World) -> Self {
        Self::new(world).with("X-API-KEY", world.key.expose())
    }

    fn inside(world: &World, view: &SandboxView, port: u16) -> Self {
        let client = Self::new(world).with("E2b-Sandbox-Id", view.id.as_str());
        let client = client.with("E2b-Sandbox-Port", &port.to_string());
        match &view.access_token {
            Some(token) => client.with("X-Access-Token", token.expose()),
            None => client,
        }
    }

    async fn outcome(&self, method: &str, path: &str, body: impl Into<Body>) -> Result<Answer, Cut> {
        let mut request = Request::builder().method(method).uri(path).header("Host", "localhost:3000");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = self.gateway.call(request.body(body.into()).unwrap(), Breaker::new()).await?;
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|_| Cut)?;
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.to_vec() })
    }

    async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        self.outcome(method, path, body).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let answer = self.with("Content-Type", "application/json").send(method, path, body.to_string()).await;
        (answer.status, answer.json())
    }
}

/// The path of a route with a sandbox and names put in.
fn path(route: &routes::Route, sandbox: &str) -> String {
    let path = route.path.replace("{id}", if route.of_sandbox { sandbox } else { "name" });
    path.replace("{build}", "b").replace("{hash}", "h").replace("{alias}", "base")
}

#[tokio::test]
async fn every_route_needs_a_key_that_is_known() {
    let world = World::new().await;
    let client = Client::new(&world);
    for route in routes::all().iter().filter(|route| route.needs == Needs::Key) {
        let path = path(route, "iabc");
        for key in [None, Some("e2b_0"), Some(&*format!("e2b_{}", "0".repeat(40)))] {
            let client = key.map_or_else(|| client.with("X-None", ""), |key| client.with("X-API-KEY", key));
            let (status, body) = client.ask(route.method.as_str(), &path, json!({})).await;
            assert_eq!((status, &body["code"]), (401, &json!(401)), "{} {path}", route.method);
            assert!(body["message"].is_string());
        }
    }
}

#[tokio::test]
async fn a_sandbox_of_another_tenant_does_not_exist() {
    let world = World::new().await;
    let view = world.create().await;
    let (_, _, key) = world.app.create_tenant(&world.actor, "other", Quota::default()).await.unwrap();
    let client = Client::new(&world).with("X-API-KEY", key.expose());
    for route in routes::all().iter().filter(|route| route.of_sandbox) {
        let path = path(route, view.id.as_str());
        let (status, body) = client.ask(route.method.as_str(), &path, json!({"timeout": 1})).await;
        assert_eq!((status, &body["code"]), (404, &json!(404)), "{} {path}: {body}", route.method);
    }
    assert!(world.app.live(&view.id).is_some());
}

#[tokio::test]
async fn every_route_answers_json_to_rubbish() {
    let world = World::new().await;
    let client = Client::with_key(&world).with("Content-Type", "application/json");
    for route in routes::all() {
        for (id, body) in [("iabc", "{"), ("%ff", "{}"), ("A", "[]"), ("iabc", "\u{0}"), ("..%2F..", "{}")] {
            let path = path(&route, id);
            let answer = client.send(route.method.as_str(), &path, body).await;
            assert!(
                answer.status < 500 || answer.status == 501,
                "{} {path}: {}",
                route.method,
                answer.status
            );
            if answer.status >= 400 {
                assert_eq!(answer.json()["code"], answer.status, "{} {path}", route.method);
            }
        }
    }
}

#[tokio::test]
async fn a_sandbox_lives_from_create_to_kill() {
    let world = World::new().await;
    let client = Client::with_key(&world);
    let body = json!({"templateID": "base", "timeout": 60, "metadata": {"k": "v"}, "envVars": {"A": "b"}});
    let (status, made) = client.ask("POST", "/v2/sandboxes", body).await;
    assert_eq!(status, 201, "{made}");
    let id = made["sandboxID"].as_str().unwrap().to_owned();
    assert!(made["envdAccessToken"].is_string());
    let (_, info) = client.ask("GET", &format!("/sandboxes/{id}-client"), json!({})).await;
    assert_eq!((&info["state"], &info["metadata"]["k"]), (&json!("running"), &json!("v")));
    let (_, again) = client.ask("POST", &format!("/v2/sandboxes/{id}/connect"), json!({"timeout": 10})).await;
    assert_eq!(again["envdAccessToken"], made["envdAccessToken"]);
    let (_, same) = client.ask("GET", &format!("/sandboxes/{id}"), json!({})).await;
    assert_eq!(same["endAt"], info["endAt"], "connect never shortens");
    assert_eq!(client.ask("POST", &format!("/sandboxes/{id}/resume"), json!({})).await.0, 409);
    assert_eq!(client.ask("POST", &format!("/sandboxes/{id}/timeout"), json!({"timeout": 30})).await.0, 204);
    let listed = client.send("GET", "/v2/sandboxes?metadata=k%3Dv&state=running", "").await;
    assert_eq!(
        (listed.json().as_array().unwrap().len(), &listed.headers["x-total-running"]),
        (1, &"1".parse().unwrap())
    );
    assert_eq!(client.ask("DELETE", &format!("/sandboxes/{id}"), json!({})).await.0, 204);
    assert_eq!(client.ask("DELETE", &format!("/sandboxes/{id}"), json!({})).await.0, 404);
    assert_eq!(client.ask("GET", &format!("/sandboxes/{id}"), json!({})).await.0, 404);
    let gone = Client::new(&world).with("E2b-Sandbox-Id", &id).with("E2b-Sandbox-Port", "49983");
    let answer = gone.send("GET", "/health", "").await;
    assert_eq!((answer.status, &answer.json()["message"]), (502, &json!("The sandbox was not found")));
}

#[tokio::test]
async fn an_idempotency_key_makes_one_sandbox() {
    let world = World::new().await;
    let client = Client::with_key(&world).with("Idempotency-Key", "once");
    let (_, first) = client.ask("POST", "/v2/sandboxes", json!({"templateID": "base"})).await;
    let (status, again) = client.ask("POST", "/v2/sandboxes", json!({"templateID": "base"})).await;
    assert_eq!((status, again), (201, first));
    let (status, body) =
        client.ask("POST", "/v2/sandboxes", json!({"templateID": "base", "timeout": 5})).await;
    assert_eq!((status, &body["error_code"]), (422, &json!("idempotency_key_mismatch")));
    assert_eq!(world.node.sandboxes().len(), 1);
}

fn frames(body: &[u8]) -> Vec<(u8, Value)> {
    let (mut rest, mut found) = (body, Vec::new());
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        found.push((head[0], serde_json::from_slice(&after[..length]).unwrap()));
        rest = &after[length..];
    }
    found
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

#[tokio::test]
async fn a_command_streams_start_data_end_and_the_end_frame() {
    let world = World::new().await;
    let client = Client::inside(&world, &world.create().await, envd::PORT);
    let client =
        client.with("Content-Type", "application/connect+json").with("Connect-Protocol-Version", "1");
    let start = json!({"process": {"cmd": "echo", "args": ["hi"]}, "stdin": false}).to_string();
    let answer = client.send("POST", "/process.Process/Start", frame(start.as_bytes())).await;
    assert_eq!(answer.status, 200);
    let expected = [
        (0, json!({"event": {"start": {"pid": 100}}})),
        (0, json!({"event": {"data": {"stdout": "aGkK"}}})),
        (0, json!({"event": {"end": {"exited": true, "status": "exit status 0"}}})),
        (2, json!({})),
    ];
    assert_eq!(frames(&answer.body), expected);
    let missing = json!({"process": {"cmd": "missing"}}).to_string();
    let answer = client.send("POST", "/process.Process/Start", frame(missing.as_bytes())).await;
    assert_eq!(frames(&answer.body)[0].1["error"]["code"], "invalid_argument");
}

#[tokio::test]
async fn a_broken_call_is_an_error_in_the_words_of_connect() {
    let world = World::new().await;
    let client = Client::inside(&world, &world.create().await, envd::PORT);
    let streaming =
        client.with("Content-Type", "application/connect+json").with("Connect-Protocol-Version", "1");
    for body in [&b""[..], b"\0\0\0\0\x09{}", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x02{]", b"\x01\0\0\0\x02{}"] {
        let answer = streaming.send("POST", "/process.Process/Start", body.to_vec()).await;
        let last = frames(&answer.body).pop().unwrap();
        assert!((last.0, last.1["error"]["code"].is_string()) == (2, true), "{body:?}: {last:?}");
    }
    let unary = client.with("Content-Type", "application/json");
    for body in ["", "{", "[]", "null", "{\"path\": 5}"] {
        let answer = unary.send("POST", "/filesystem.Filesystem/Stat", body).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("invalid_argument")), "{body}");
    }
    let late = unary.with("Connect-Timeout-Ms", "99999999999999999999");
    assert_eq!(late.send("POST", "/filesystem.Filesystem/Stat", "{}").await.status, 400);
}

#[tokio::test]
async fn both_codecs_are_understood() {
    let world = World::new().await;
    let client = Client::inside(&world, &world.create().await, envd::PORT);
    // `StatRequest.path` is field 1: tag 0x0a, length, text.
    let answer = client
        .with("Content-Type", "application/proto")
        .send("POST", "/filesystem.Filesystem/MakeDir", b"\x0a\x02/d".to_vec())
        .await;
    assert_eq!(
        (answer.status, &answer.headers["content-type"]),
        (200, &"application/proto".parse().unwrap())
    );
    assert!(answer.body.windows(2).any(|window| window == b"/d"));
}

#[tokio::test]
async fn the_inside_needs_its_token_but_for_health() {
    let world = World::new().await;
    let view = world.create().await;
    let bare = Client::inside(&world, &SandboxView { access_token: None, ..view.clone() }, envd::PORT);
    assert_eq!(bare.send("GET", "/health", "").await.status, 204);
    let paths = [
        ("POST", "/process.Process/List"),
        ("GET", "/metrics"),
        ("GET", "/envs"),
        ("POST", "/files/compose"),
    ];
    for client in [&bare, &bare.with("X-Access-Token", "wrong")] {
        for (method, path) in paths.into_iter().chain([("GET", "/files?path=/a"), ("POST", "/files?path=/a")])
        {
            let (status, body) = client.ask(method, path, json!({})).await;
            assert_eq!((status, &body["code"]), (401, &json!(401)), "{method} {path}");
        }
        assert_eq!(client.ask("POST", "/init", json!({})).await.0, 404);
    }
}

#[tokio::test]
async fn files_go_in_and_come_out() {
    let world = World::new().await;
    let client = Client::inside(&world, &world.create().await, envd::PORT);
    let content: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let octets = client.with("Content-Type", "application/octet-stream");
    let answer = octets.send("POST", "/files?path=%2Fa%20b", content.clone()).await;
    assert_eq!((answer.status, &answer.json()[0]["path"]), (200, &json!("/a b")));
    assert_eq!(client.send("GET", "/files?path=%2Fa+b", "").await.body, content);
    let part = client.with("Range", "bytes=10-19").send("GET", "/files?path=%2Fa+b", "").await;
    assert_eq!((part.status, &part.body[..]), (206, &content[10..20]));
    let form = client.with("Content-Type", "multipart/form-data; boundary=B");
    let two = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/0/x\"\r\n\r\none\r\n\
               --B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"y\"\r\n\r\ntwo\r\n--B--\r\n";
    let answer = form.send("POST", "/files", two).await;
    assert_eq!((&answer.json()[0]["path"], &answer.json()[1]["name"]), (&json!("/0/x"), &json!("y")));
    assert_eq!(client.send("GET", "/files?path=y", "").await.body, b"two");
}

#[tokio::test]
async fn files_that_cannot_be_are_refused() {
    let world = World::new().await;
    let client = Client::inside(&world, &world.create().await, envd::PORT);
    let octets = client.with("Content-Type", "application/octet-stream");
    assert_eq!(client.send("GET", "/files?path=/none", "").await.status, 404);
    assert_eq!(octets.send("POST", "/files", "x").await.status, 400);
    assert_eq!(octets.send("POST", "/files?path=/full", vec![0; 1_000_000]).await.status, 507);
    assert_eq!(
        client.with("Content-Type", "text/plain").send("POST", "/files?path=/a", "x").await.status,
        400
    );
    let odd = octets.with("Content-Encoding", "br");
    assert_eq!(odd.send("POST", "/files?path=/a", "x").await.status, 400);
    let cut = octets.with("Content-Encoding", "gzip");
    assert_eq!(cut.send("POST", "/files?path=/a", "no gzip").await.status, 400);
    let meta = octets.with("X-Metadata-A", "\u{e9}");
    assert_eq!(meta.send("POST", "/files?path=/meta", "x").await.status, 400);
    assert_eq!(client.send("GET", "/files?path=/meta", "").await.status, 404, "nothing was made");
}

#[tokio::test]
async fn a_signed_url_finds_its_sandbox_by_itself() {
    let world = World::new().await;
    let view = world.create().await;
    world.create().await;
    let octets = Client::inside(&world, &view, envd::PORT).with("Content-Type", "application/octet-stream");
    assert_eq!(octets.send("POST", "/files?path=/s", "signed").await.status, 200);
    let (token, client) = (view.access_token.as_ref().unwrap().expose(), Client::new(&world));
    let sign = |text: &str| {
        let hash = sha2::Sha256::digest(format!("/s:read::{token}{text}"));
        base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash).replace('+', "%2B")
    };
    let answer = client.send("GET", &format!("/files?path=/s&signature=v1_{}", sign("")), "").await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"signed"[..]));
    let late = format!("/files?path=/s&signature=v1_{}&signature_expiration=1", sign(":1"));
    let late = client.send("GET", &late, "").await;
    assert_eq!(late.body, br#"{"code":401,"message":"signature is already expired"}"#);
    let wrong = client.send("GET", "/files?path=/s&signature=v1_x", "").await;
    assert_eq!((wrong.status, &wrong.json()["message"]), (401, &json!("invalid signature")));
    assert_eq!(client.send("GET", "/files?path=/s", "").await.status, 401);
}

#[tokio::test]
async fn private_ports_need_the_traffic_token_and_closed_ones_say_so() {
    let world = World::new().await;
    let request = CreateSandbox { secure: true, private_ingress: true, ..CreateSandbox::default() };
    let view = world.app.create_sandbox(&world.actor, request).await.unwrap();
    let client = Client::inside(&world, &view, 9);
    assert_eq!(client.ask("GET", "/", json!({})).await.0, 403);
    assert_eq!(client.with(TRAFFIC_TOKEN_HEADER, "wrong").ask("GET", "/", json!({})).await.0, 403);
    let token = view.traffic_token.as_ref().unwrap().expose();
    let (status, body) = client.with(TRAFFIC_TOKEN_HEADER, token).ask("GET", "/", json!({})).await;
    assert_eq!((status, &body["message"]), (502, &json!("The sandbox is running but port is not open")));
}

#[tokio::test]
async fn the_end_of_a_sandbox_cuts_what_runs_in_it() {
    let world = World::new().await;
    let view = world.create().await;
    let client = Client::inside(&world, &view, envd::PORT).with("Content-Type", "application/connect+json");
    let start = frame(json!({"process": {"cmd": "forever"}}).to_string().as_bytes());
    let running = client.outcome("POST", "/process.Process/Start", start);
    let killed = async {
        crate::testing::eventually(async || {
            let agent = world.app.agent(&world.actor, &view.id).await.unwrap();
            !agent.processes().await.unwrap().is_empty()
        })
        .await;
        world.app.kill_sandbox(&world.actor, &view.id).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(running, killed);
    assert!(outcome.is_err(), "an orderly end");
}

#[tokio::test]
async fn addresses_that_cannot_be_read_are_400_in_plain_text() {
    let world = World::new().await;
    let half = Client::new(&world).with("E2b-Sandbox-Id", "iabc").send("GET", "/", "").await;
    assert_eq!((half.status, &half.body[..]), (400, &b"missing header: E2b-Sandbox-Port\n"[..]));
    let tunnel = Client::new(&world).send("CONNECT", "x.test:80", "").await;
    assert_eq!(tunnel.status, 405);
    assert!(half.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn browsers_may_ask_from_anywhere() {
    let world = World::new().await;
    let view = world.create().await;
    for client in [Client::new(&world), Client::inside(&world, &view, envd::PORT)] {
        let client = client.with("Origin", "http://a.test").with("Access-Control-Request-Method", "POST");
        let answer = client.send(Method::OPTIONS.as_str(), "/v2/sandboxes", "").await;
        assert_eq!(
            (answer.status, &answer.headers["access-control-allow-origin"]),
            (204, &"*".parse().unwrap())
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_message_to_any_call_has_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..80), call in 0usize..6) {
        let calls = ["process.Process/Start", "process.Process/SendInput", "process.Process/StreamInput",
            "filesystem.Filesystem/Stat", "filesystem.Filesystem/ListDir", "filesystem.Filesystem/WatchDir"];
        let kinds = ["application/connect+proto", "application/proto", "application/json", "application/connect+json"];
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let client = Client::inside(&world, &world.create().await, envd::PORT);
            for kind in kinds {
                let client = client.with("Content-Type", kind).with("Connect-Timeout-Ms", "500");
                let answer = client.send("POST", &format!("/{}", calls[call]), bytes.clone()).await;
                assert!(answer.status < 500 || answer.status == 504 || answer.status == 501, "{}", answer.status);
            }
        });
    }
}
