//! Owns the two list endpoints: filters, pages, and the headers that carry them.

use super::error::Error;
use super::pairs;
use super::query::{instant, number, parameter};
use super::shapes::Listed;
use crate::app::{Actor, App, ListFilter};
use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use cofferdam_core::State as SandboxState;
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;

const PAGE_MAX: u32 = 100;
/// Pages that the old list, which has no pages, puts together.
const PAGES_MAX: usize = 100;

/// `GET /v2/sandboxes`.
pub(crate) async fn v2(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    RawQuery(query): RawQuery,
) -> Result<(HeaderMap, Json<Vec<Listed>>), Error> {
    let page = app.list_sandboxes(&actor, filter(query.as_deref())?).await?;
    let mut headers = HeaderMap::new();
    headers.insert("x-total-running", HeaderValue::from(page.running));
    if let Some(next) = page.next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        headers.insert("x-next-token", next);
    }
    Ok((headers, Json(page.sandboxes.iter().filter_map(Listed::new).collect())))
}

/// `GET /sandboxes`: running ones, oldest first, all at once.
pub(crate) async fn v1(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Listed>>, Error> {
    let mut filter = ListFilter {
        states: running(),
        metadata: metadata(query.as_deref())?,
        ascending: true,
        limit: PAGE_MAX,
        ..ListFilter::default()
    };
    let mut rows = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = app.list_sandboxes(&actor, filter.clone()).await?;
        rows.extend(page.sandboxes.iter().filter_map(Listed::new));
        match page.next {
            Some(next) => filter.page = Some(next),
            None => break,
        }
    }
    Ok(Json(rows))
}

fn filter(query: Option<&str>) -> Result<ListFilter, Error> {
    Ok(ListFilter {
        states: states(parameter(query, "state")?.as_deref())?,
        metadata: metadata(query)?,
        template: template(query)?,
        started_after: instant(query, "startedAfter")?,
        ascending: ascending(parameter(query, "order")?.as_deref())?,
        limit: number(query, "limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_MAX),
        page: parameter(query, "nextToken")?,
    })
}

fn running() -> Vec<SandboxState> {
    vec![SandboxState::Running, SandboxState::Resuming]
}

fn states(text: Option<&str>) -> Result<Vec<SandboxState>, Error> {
    let mut states = Vec::new();
    for name in text.unwrap_or("running,paused").split(',') {
        match name.trim() {
            "running" => states.extend(running()),
            "paused" => states.extend([SandboxState::Paused, SandboxState::Pausing]),
            other => {
                return Err(Error::bad_request(format!("state must be running or paused, got '{other}'")));
            }
        }
    }
    Ok(states)
}

fn metadata(query: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let text = parameter(query, "metadata")?.unwrap_or_default();
    pairs::decode(&text).map_err(|error| Error::bad_request(error.to_string()))
}

fn template(query: Option<&str>) -> Result<Option<String>, Error> {
    let template = parameter(query, "template")?;
    if template.as_ref().is_some_and(|name| name.contains(':')) {
        return Err(Error::bad_request("template must not have a tag"));
    }
    Ok(template)
}

fn ascending(order: Option<&str>) -> Result<bool, Error> {
    match order {
        None | Some("desc") => Ok(false),
        Some("asc") => Ok(true),
        Some(other) => Err(Error::bad_request(format!("order must be asc or desc, got '{other}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        let query = "state=running&metadata=a%3Db&order=asc&limit=3&nextToken=t&startedAfter=2026-01-02T03:04:05.678901Z";
        let filter = filter(Some(query)).unwrap();
        assert_eq!(filter.states, running());
        assert_eq!(filter.metadata["a"], "b");
        assert!(filter.ascending);
        assert_eq!((filter.limit, filter.page.as_deref()), (3, Some("t")));
        assert_eq!(filter.started_after.unwrap().as_micros(), 1_767_323_045_678_901);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for query in ["state=dead", "order=up", "limit=0", "template=a:b", "startedAfter=x", "metadata=%25ff"]
        {
            assert_eq!(filter(Some(query)).map(|_| ()).unwrap_err().status(), 400, "{query}");
        }
        assert_eq!(filter(None).unwrap().states.len(), 4);
    }
}
