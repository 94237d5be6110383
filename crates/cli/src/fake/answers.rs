//! Owns what the fake server answers to plain requests.

use super::{Fake, KEY};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use tokio::net::TcpStream;

type Answer = (u16, Bytes);

impl Fake {
    pub(super) async fn answer(self, stream: TcpStream) {
        let service = service_fn(move |request: Request<Incoming>| {
            let fake = self.clone();
            async move {
                let (status, body) = fake.reply(request).await;
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, Infallible>(response)
            }
        });
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        connection.await.unwrap_or_default();
    }

    async fn reply(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        self.note(format!("{} {path}", parts.method));
        if parts.headers.get("x-api-key").is_none_or(|key| key != KEY) {
            return refused(401, "unauthenticated", "the API key is not known");
        }
        let query: BTreeMap<String, String> = parts.uri.query().map(parse).unwrap_or_default();
        let body = body.collect().await.unwrap().to_bytes();
        match path.strip_prefix("/v1/sandboxes/iabc") {
            Some(rest) if rest.starts_with("/files") => self.file(&parts.method, rest, (&query, &body)),
            Some("") if parts.method == Method::DELETE => (204, Bytes::new()),
            Some("") => ok(&sandbox("iabc", "running")),
            Some("/timeout") => (204, Bytes::new()),
            Some("/logs") => logs(&query),
            Some("/exec") => ok(&self.exec(&body)),
            Some(_) | None => general(&parts.method, &path, &query),
        }
    }

    /// Knows `ln` only.
    fn exec(&self, body: &[u8]) -> Value {
        let request: Value = serde_json::from_slice(body).unwrap();
        if request["argv"][0] == "ln" {
            let to = self.path(request["argv"][4].as_str().unwrap());
            std::os::unix::fs::symlink(request["argv"][3].as_str().unwrap(), to).unwrap();
        }
        json!({ "pid": 9, "exit": { "code": 0, "timed_out": false, "duration_ms": 1 },
                "stdout": "", "stderr": "", "truncated": false })
    }

    fn file(&self, method: &Method, rest: &str, (query, body): (&BTreeMap<String, String>, &[u8])) -> Answer {
        let asked = query.get("path").cloned().unwrap_or_default();
        let path = self.path(&asked);
        match (method, rest) {
            (&Method::GET, "/files") => (200, fs::read(path).unwrap().into()),
            (&Method::PUT, "/files") => {
                fs::write(&path, body).unwrap();
                let mode = u32::from_str_radix(&query["mode"], 8).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                (200, Bytes::new())
            }
            (_, "/files/mkdir") => {
                let body: Value = serde_json::from_slice(body).unwrap();
                let path = self.path(body["path"].as_str().unwrap());
                if path.is_dir() {
                    return refused(409, "already_exists", "it exists");
                }
                fs::create_dir_all(path).unwrap();
                (200, Bytes::new())
            }
            (_, "/files/stat") if fs::symlink_metadata(&path).is_ok() => {
                ok(&json!({ "entries": [entry(&path, &asked)] }))
            }
            (_, "/files/list") => {
                let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
                let names = names.map(|name| name.into_string().unwrap());
                let entries = names.map(|name| entry(&path.join(&name), &format!("{asked}/{name}")));
                ok(&json!({ "entries": entries.collect::<Vec<_>>() }))
            }
            _ => refused(404, "not_found", "no such file"),
        }
    }
}

fn entry(real: &Path, shown: &str) -> Value {
    let metadata = fs::symlink_metadata(real).unwrap();
    let kind = if metadata.is_symlink() {
        "symlink"
    } else if metadata.is_dir() {
        "directory"
    } else {
        "file"
    };
    // A name that starts with `evil` tries to leave.
    let name = Path::new(shown).file_name().unwrap().to_str().unwrap();
    let name = if name.starts_with("evil") { "../evil" } else { name };
    json!({ "name": name, "path": shown, "file_type": kind, "target_type": null,
            "target": fs::read_link(real).ok(), "size": metadata.len(), "mode": metadata.mode() & 0o7777,
            "uid": 0, "gid": 0, "owner": "root", "group": "root", "modified_us": 0 })
}

fn general(method: &Method, path: &str, query: &BTreeMap<String, String>) -> Answer {
    match (method, path) {
        (&Method::POST, "/v1/sandboxes") => ok(&sandbox("iabc", "running")),
        (&Method::GET, "/v1/sandboxes") => match query.get("next") {
            None => ok(&json!({ "sandboxes": [sandbox("iabc", "running")], "next": "2" })),
            Some(_) => ok(&json!({ "sandboxes": [sandbox("idef", "killed")] })),
        },
        (_, "/v1/keys") => ok(&json!({ "id": "k1", "name": "n", "masked": "e2b_0000…", "scopes": ["*"],
                                       "created_at": "2026-01-01T00:00:00Z", "secret": "e2b_1", "keys": [] })),
        (_, "/v1/doctor") => ok(&json!({ "checks": [
            { "name": "overlay", "verdict": "pass", "detail": "works", "remedy": null },
            { "name": "btrfs", "verdict": "fail", "detail": "not in this kernel", "remedy": "load the module btrfs" },
        ]})),
        (_, "/v1/templates") => ok(&json!({ "templates": [template()] })),
        (&Method::PUT, "/v1/templates/mine") => {
            let progress = json!({ "type": "progress", "step": "unpack", "done": 1 });
            let mut end = template();
            end["type"] = "template".into();
            (200, format!("{progress}\n{end}\n").into())
        }
        _ => refused(404, "not_found", "there is no such thing here"),
    }
}

fn logs(query: &BTreeMap<String, String>) -> Answer {
    let row = json!({ "at": "2026-01-01T00:00:00Z", "event": "command_finished", "fields": { "exit": 0 } });
    let rows = if query.contains_key("after") { vec![] } else { vec![row] };
    ok(&json!({ "rows": rows, "cursor": 1 }))
}

fn template() -> Value {
    json!({ "id": "t1", "name": "mine", "digest": format!("sha256:{}", "a".repeat(64)), "created_at": 0,
            "size_bytes": 2048, "default_user": "user", "default_workdir": "", "env": {} })
}

fn sandbox(id: &str, state: &str) -> Value {
    json!({ "id": id, "state": state, "template": "base", "template_digest": "sha256:0",
            "resources": { "cpu_millis": 2000, "memory_mib": 512, "disk_mib": 1024, "processes": 64, "open_files": 64 },
            "metadata": { "run": "1" }, "started_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T00:05:00Z" })
}

fn ok(value: &Value) -> Answer {
    (200, value.to_string().into())
}

fn refused(code: u16, kind: &str, message: &str) -> Answer {
    (code, json!({ "code": code, "kind": kind, "message": message, "request_id": "r1" }).to_string().into())
}

fn parse(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    pairs.map(|(name, value)| (name.to_owned(), decode(value))).collect()
}
