//! Pages of other sites: one may be open in the browser of whoever runs the emulator, and must not act in their name.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::rest::error::ApiError;

/// Lets in programs, and a person who looks at the emulator's own page.
pub(super) async fn refuse_other_sites(request: Request, next: Next) -> Response {
    if is_of_another_site(request.headers()) {
        let text = "A page of another site cannot call this emulator";
        return ApiError::new(403, "forbidden", text).into_response();
    }
    next.run(request).await
}

/// Whether a request comes from a page of another site.
///
/// Browsers say where a request comes from, programs do not. A page of another site may have had its own name resolved
/// to this machine; so a name other than this machine's is foreign, even if the page calls itself.
pub fn is_of_another_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (host, origin) = (text(header::HOST.as_str()), text(header::ORIGIN.as_str()));
    let site = text("sec-fetch-site").unwrap_or("none");
    // What was typed or clicked is shown to the person, and to no page.
    let is_looked_at = site == "none" || text("sec-fetch-mode") == Some("navigate");
    if origin.is_none() && is_looked_at {
        return false;
    }
    let from_itself = origin
        .and_then(|origin| origin.split_once("://"))
        .is_none_or(|(_, from)| host == Some(from));
    let is_null = origin.is_some_and(|origin| !origin.contains("://"));
    let is_same = matches!(site, "none" | "same-origin");
    !(from_itself && !is_null && is_same && host.is_some_and(is_this_machine))
}

/// An address, or a name that only this machine has.
fn is_this_machine(host: &str) -> bool {
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.ends_with(".localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn foreign(headers: &[(&str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        });
        is_of_another_site(&headers.collect())
    }

    #[test]
    fn programs_and_the_own_page_are_let_in() {
        for headers in [
            &[("host", "emulator.internal:9050")][..],
            &[],
            &[("host", "127.0.0.1:9050"), ("origin", "http://127.0.0.1:9050")],
            &[
                ("host", "localhost:9050"),
                ("origin", "http://localhost:9050"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[("host", "[::1]:9050"), ("sec-fetch-site", "same-origin")],
            // A link on another site, which a person clicks.
            &[
                ("host", "127.0.0.1:9050"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
            ],
        ] {
            assert!(!foreign(headers), "{headers:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_not() {
        for headers in [
            &[("host", "127.0.0.1:9050"), ("origin", "https://evil.example")][..],
            &[("host", "127.0.0.1:9050"), ("origin", "null")],
            &[("host", "127.0.0.1:9050"), ("sec-fetch-site", "cross-site")],
            // A form that is sent.
            &[
                ("host", "127.0.0.1:9050"),
                ("origin", "https://evil.example"),
                ("sec-fetch-mode", "navigate"),
            ],
            // A name that was made to lead here.
            &[
                ("host", "evil.example:9050"),
                ("origin", "http://evil.example:9050"),
            ],
            &[("host", "evil.example:9050"), ("sec-fetch-site", "same-origin")],
        ] {
            assert!(foreign(headers), "{headers:?}");
        }
    }
}
