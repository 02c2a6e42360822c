//! Reads single option values: sizes, durations, addresses.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use url::{Host, Url};

/// Where a service answers: scheme, host and port, nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Reads `http://host:port` or `https://host:port`; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The text itself is not repeated in errors: someone may have put a password there.
        let url = Url::parse(text).map_err(|error| format!("not an address: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("'{}' is neither http nor https", url.scheme()));
        }
        if url.host().is_none() {
            return Err("it names no host".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("user and password do not belong into an address; see 'credentials'".to_owned());
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err("it must end after host and port".to_owned());
        }
        Ok(Self(url))
    }

    /// Whether it is spoken to without TLS; such an endpoint is never sent a credential.
    #[must_use]
    pub fn is_plaintext(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Whether it is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => false,
        }
    }

    /// The address without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// A size in bytes: a whole or decimal number, then B (or nothing), KiB, MiB, GiB, kB, MB or GB in any case.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let size = number.parse::<f64>().ok()? * factor as f64;
    (size.fract() == 0.0 && size < 9e15).then_some(size as u64)
}

/// A duration: `200 ms`, `5 min`, `1h 30m`, and the SQL spellings `5 minutes` and `INTERVAL '5' MINUTE`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut text = text.trim().to_lowercase();
    if let Some(interval) = text.strip_prefix("interval") {
        text = interval.replace('\'', " ");
    }
    // humantime knows the others.
    for (word, unit) in [
        ("milliseconds", "ms"),
        ("millisecond", "ms"),
        ("microseconds", "us"),
        ("microsecond", "us"),
    ] {
        text = text.replace(word, unit);
    }
    humantime::parse_duration(text.trim()).ok()
}

/// A value as an error repeats it.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}
