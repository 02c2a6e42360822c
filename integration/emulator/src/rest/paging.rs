//! Pages of lists and of rows. A token says what it goes on with, so that it is good for that alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::rest::error::ApiError;
use crate::rest::request::Params;

/// Entries of a list page, unless the caller asks for fewer.
const LIST_PAGE: u64 = 1000;

/// The entries that a list call asks for, and the token of the next page. Each comes with its key, in the order of
/// which they stand; a page begins behind a key, so that what comes and goes meanwhile moves nothing.
pub(super) fn list_page(
    what: &str,
    entries: Vec<(String, Value)>,
    params: &Params,
) -> Result<(Vec<Value>, Option<String>), ApiError> {
    let behind = params
        .text("pageToken")
        .map(|token| read_token(what, token))
        .transpose()?;
    let most = match params.number("maxResults")? {
        None | Some(0) => LIST_PAGE,
        Some(most) => most.min(LIST_PAGE),
    };
    // No more than LIST_PAGE.
    let most = most as usize;
    let mut entries: Vec<_> = entries
        .into_iter()
        .filter(|(key, _)| behind.as_ref().is_none_or(|behind| key > behind))
        .collect();
    let more = entries.len() > most;
    entries.truncate(most);
    let last = entries.last().filter(|_| more);
    let next = last.map(|(key, _)| token(what, key));
    Ok((entries.into_iter().map(|(_, entry)| entry).collect(), next))
}

/// The first row to return: of `pageToken`, else of `startIndex`.
pub(super) fn first_row(what: &str, params: &Params) -> Result<u64, ApiError> {
    let Some(token) = params.text("pageToken") else {
        return Ok(params.number("startIndex")?.unwrap_or(0));
    };
    read_token(what, token)?.parse().map_err(|_| wrong_token(token))
}

/// The token of the page of rows that begins with this one, if there is one. Who asks for no rows gets none however
/// often it asks, and no token.
pub(super) fn next_rows(what: &str, next: u64, total: u64, most: Option<u64>) -> Option<String> {
    (next < total && most != Some(0)).then(|| token(what, &next.to_string()))
}

fn token(what: &str, at: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{what}\n{at}"))
}

fn read_token(what: &str, token: &str) -> Result<String, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let text = String::from_utf8(bytes).unwrap_or_default();
    match text.split_once('\n') {
        Some((of, at)) if of == what => Ok(at.to_owned()),
        _ => Err(wrong_token(token)),
    }
}

fn wrong_token(token: &str) -> ApiError {
    ApiError::invalid(format!("Invalid page token: {token}"))
}
