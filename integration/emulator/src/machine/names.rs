//! Names as the service reads them: tables with day decorators, streams, and the routing header.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::catalog::TableRef;

/// Where an append or a stream RPC goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    /// The table, without decorator.
    pub(super) table: TableRef,
    /// Full name of the stream as it is known; the default stream in its long form.
    pub(super) name: String,
    /// It is the table's default stream.
    pub(super) default: bool,
}

impl Target {
    /// Reads `{table}/streams/{id}` and `{table}/_default` (write-api.md 1.3).
    pub(super) fn parse(name: &str) -> Result<Self, Refusal> {
        let bad = || Refusal::invalid(format!("Invalid stream name: {}", shorten(name)));
        // Three names of 1024 bytes, and what stands between them.
        let (path, id) = name
            .rsplit_once('/')
            .filter(|_| name.len() <= 4096)
            .ok_or_else(bad)?;
        // A dataset or a table may be called `streams` as well.
        let path = match path.strip_suffix("/streams") {
            Some(long) if !id.is_empty() && parse_table(long).is_some() => long,
            _ if id == "_default" => path,
            _ => return Err(bad()),
        };
        let table = parse_table(path).ok_or_else(bad)?;
        Ok(Self {
            table,
            name: format!("{path}/streams/{id}"),
            default: id == "_default",
        })
    }
}

/// Reads a table's name, which may carry a day: `table$20240131`.
pub(super) fn parse_table(path: &str) -> Option<TableRef> {
    let mut table = TableRef::parse(path)?;
    if let Some((name, day)) = table.table.split_once('$') {
        if name.is_empty() || day.len() != 8 || !day.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        table.table = name.to_owned();
    }
    Some(table)
}

/// The next stream id: what production's look like, unpadded base64url of a message whose field 1 is `<uuid>:s<n>`.
pub(super) fn stream_id(seed: u128, nth: u64) -> String {
    // Any odd constant: ids differ within a run, and between runs by the seed.
    let bits = seed.wrapping_add(u128::from(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let uuid = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
    let text = format!("{uuid}:s{}", nth % 10);
    let mut message = vec![0x0a, text.len() as u8];
    message.extend_from_slice(text.as_bytes());
    URL_SAFE_NO_PAD.encode(message)
}

/// Whether the routing header leads to a table in `location` (write-api.md 3.7). If `lenient`, percent-encoded values
/// are taken as raw ones are, and a location alone is enough.
pub(super) fn routed(header: Option<&str>, table: &TableRef, location: &str, lenient: bool) -> bool {
    let path = table.path();
    let leads = |value: &str| {
        let rest = value.strip_prefix(path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '$']))
    };
    header
        .into_iter()
        .flat_map(|header| header.split('&'))
        .any(|param| match param.split_once('=') {
            Some((_, value)) if !lenient => leads(value),
            Some(("write_location", value)) => {
                let value = percent_decode(value);
                value
                    .rsplit('/')
                    .next()
                    .is_some_and(|name| name.eq_ignore_ascii_case(location))
            }
            Some((_, value)) => leads(&percent_decode(value)),
            None => false,
        })
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                bytes.push((hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0)) as u8);
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Names come back in errors; a client's megabyte does not.
pub(super) fn shorten(name: &str) -> String {
    name.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_default_stream_are_one() {
        let long = Target::parse("projects/p/datasets/d/tables/t/streams/_default").unwrap();
        assert_eq!(
            Target::parse("projects/p/datasets/d/tables/t/_default").unwrap(),
            long
        );
        assert!(long.default);
        for names in [
            "datasets/streams/tables/t",
            "datasets/d/tables/streams",
            "datasets/d/tables/_default",
        ] {
            let (long, short) = (
                format!("projects/p/{names}/streams/_default"),
                format!("projects/p/{names}/_default"),
            );
            let [long, short] = [long, short].map(|name| Target::parse(&name).unwrap());
            assert_eq!(
                (&long, long.table.path()),
                (&short, format!("projects/p/{names}"))
            );
        }
        let day = Target::parse("projects/p/datasets/d/tables/t$20240131/streams/x").unwrap();
        assert_eq!((day.table.table.as_str(), day.default), ("t", false));
        assert_eq!(day.name, "projects/p/datasets/d/tables/t$20240131/streams/x");
    }

    #[test]
    fn names_of_another_form_are_refused() {
        for bad in [
            "",
            "x",
            "/streams/",
            "projects/p/datasets/d/tables/t",
            "projects/p/datasets/d/tables/t/streams/",
        ] {
            assert_eq!(
                Target::parse(bad).unwrap_err().message,
                format!("Invalid stream name: {bad}")
            );
        }
        assert_eq!(parse_table("projects/p/datasets/d/tables/t$2024"), None);
    }

    #[test]
    fn stream_ids_look_like_productions_and_differ() {
        let id = stream_id(7, 0);
        assert_ne!(id, stream_id(7, 1));
        assert_ne!(id, stream_id(8, 0));
        let bytes = URL_SAFE_NO_PAD.decode(id).unwrap();
        assert_eq!((bytes[0], usize::from(bytes[1])), (0x0a, bytes.len() - 2));
        assert!(String::from_utf8(bytes[2..].to_vec()).unwrap().ends_with(":s0"));
    }

    #[test]
    fn the_routing_header_leads_to_one_table() {
        let table = TableRef::new("p", "d", "t");
        let led = |header| routed(Some(header), &table, "europe-west3", true);
        assert!(led(
            "write_stream=projects/p/datasets/d/tables/t/streams/_default"
        ));
        assert!(led("a=b&parent=projects%2Fp%2Fdatasets%2Fd%2Ftables%2Ft"));
        assert!(led("write_location=projects/p/locations/europe-west3"));
        assert!(!led("write_location=projects/p/locations/us"));
        assert!(!led("write_stream=projects/p/datasets/d/tables/tt"));
        assert!(!led("%"));
        assert!(!routed(None, &table, "EU", true));
    }
}
