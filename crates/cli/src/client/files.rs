//! Owns the file requests of a sandbox: what a path is, what a directory holds, content in both directions.

use super::query::Query;
use super::{Body, Client};
use crate::error::Error;
use cofferdam_core::SandboxId;
use cofferdam_proto::api::{FileList, FilePath};
use cofferdam_proto::guest::Entry;
use http::{HeaderValue, Method, header};
use hyper::body::Incoming;

/// The files of one sandbox, as one user.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) client: Client,
    pub(crate) sandbox: SandboxId,
    pub(crate) user: Option<String>,
}

impl Files {
    /// What is at `path`, or nothing.
    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Entry>, Error> {
        let list: Result<FileList, Error> = self.client.get(&self.address("/stat", path, None)).await;
        match list {
            Ok(list) => Ok(list.entries.into_iter().next()),
            Err(error) if error.is_not_found() => {
                // Tells a missing file from a missing sandbox.
                self.client.sandbox(&self.sandbox).await.map(|_| None)
            }
            Err(error) => Err(error),
        }
    }

    /// What the directory at `path` holds.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Entry>, Error> {
        let address = self.address("/list", path, Some(("depth", "1")));
        self.client.get::<FileList>(&address).await.map(|list| list.entries)
    }

    /// Makes a directory; one that exists is fine.
    pub(crate) async fn make_dir(&self, path: &str) -> Result<(), Error> {
        let body = FilePath { path: path.to_owned(), user: self.user.clone() };
        let address = format!("/v1/sandboxes/{}/files/mkdir", self.sandbox);
        let made = self.client.call(Method::POST, &address, super::json_body(&body)).await;
        match made {
            Err(Error::Api(error)) if error.kind == cofferdam_core::ErrorKind::AlreadyExists => Ok(()),
            other => other.map(drop),
        }
    }

    /// The content of the file at `path`.
    pub(crate) async fn read(&self, path: &str) -> Result<Incoming, Error> {
        let address = self.address("", path, None);
        let request = self.client.request(Method::GET, &address, super::empty())?;
        let response = self.client.send(&format!("read `{path}`"), request).await?;
        Ok(response.into_body())
    }

    /// Writes `length` bytes to the file at `path`, with these permissions.
    pub(crate) async fn write(&self, path: &str, mode: u32, content: (u64, Body)) -> Result<(), Error> {
        let address = self.address("", path, Some(("mode", &format!("{mode:04o}"))));
        let (length, body) = content;
        let mut request = self.client.request(Method::PUT, &address, body)?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        self.client.send_slowly(&format!("write `{path}`"), request).await.map(drop)
    }

    fn address(&self, operation: &str, path: &str, extra: Option<(&str, &str)>) -> String {
        let mut query = Query::default();
        query.push("path", path);
        query.push_some("user", self.user.as_deref());
        if let Some((name, value)) = extra {
            query.push(name, value);
        }
        query.append(&format!("/v1/sandboxes/{}/files{operation}", self.sandbox))
    }
}
