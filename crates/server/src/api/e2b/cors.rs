//! Owns what browsers need to call from another origin: every origin may, with every header, and read every header.
//! No credential of a browser (cookie) means anything here, so there is nothing to protect by origin.

use crate::http::Body;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const ANY: HeaderValue = HeaderValue::from_static("*");
const EXPOSED: HeaderValue = HeaderValue::from_static("*, X-Next-Token, X-Total-Running");
/// How long a browser may remember the answer to its question, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// The answer to a browser that asks whether it may, when this request is that question.
pub(crate) fn preflight(request: &Request<Body>) -> Option<Response<Body>> {
    let headers = request.headers();
    let asks =
        request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !asks {
        return None;
    }
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(ANY);
    let mut response = StatusCode::NO_CONTENT.into_response();
    set(response.headers_mut(), header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    set(response.headers_mut(), header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    set(response.headers_mut(), header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    set(response.headers_mut(), header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    Some(response)
}

/// Lets the page that asked read the answer.
pub(crate) fn open(asked: bool, mut response: Response<Body>) -> Response<Body> {
    if asked {
        set(response.headers_mut(), header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
        set(response.headers_mut(), header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

/// True when a page of some origin asks.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.insert(name, value);
}
