//! The page at `/`: what is there and what was asked last, for a person who looks.

use std::fmt::{self, Write};

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use serde::Deserialize;

use crate::catalog::{Millis, TableRef};
use crate::machine::{Exchange, Machine, StreamInfo, StreamKind};
use crate::rest::Api;

/// Streams shown: those with traffic last.
const STREAMS: usize = 200;
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--dim:#767676}\
body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:0 auto;padding:1rem}\
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);\
vertical-align:top;overflow-wrap:anywhere}\
th{font-weight:600;background:var(--soft)}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
code{font:13px ui-monospace,monospace}.dim{color:var(--dim)}.bad{color:#c5221f}.wide{overflow-x:auto}";

/// How the page is asked for.
#[derive(Deserialize)]
pub(super) struct Asked {
    /// Seconds after which the browser asks again.
    refresh: Option<u16>,
}

pub(super) async fn page(State(api): State<Api>, Query(asked): Query<Asked>) -> Response {
    let now = api.shared.now();
    let html = api.shared.with(|machine| render(machine, now, asked.refresh));
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    (headers, html).into_response()
}

fn render(machine: &Machine, now: Millis, refresh: Option<u16>) -> String {
    let mut html = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    // Writing to a String cannot fail.
    let _ok = write_all(&mut html, machine, now, refresh);
    html
}

fn write_all(html: &mut String, machine: &Machine, now: Millis, refresh: Option<u16>) -> fmt::Result {
    if let Some(seconds) = refresh {
        write!(
            html,
            "<meta http-equiv=\"refresh\" content=\"{}\">",
            seconds.max(1)
        )?;
    }
    write!(
        html,
        "<meta name=\"viewport\" content=\"width=device-width\"><title>BigQuery emulator</title><style>{STYLE}</style>\
         </head><body><h1>BigQuery emulator</h1><p class=\"dim\">{} UTC by its clock. {} open AppendRows {}. \
         <a href=\"/?refresh=2\">Refresh every 2 s</a>",
        Time(now),
        machine.connections(),
        if machine.connections() == 1 {
            "call"
        } else {
            "calls"
        },
    )?;
    write!(html, " · <a href=\"/\">once</a></p>")?;
    tables(html, machine)?;
    streams(html, machine.streams(), now)?;
    faults(html, machine)?;
    exchanges(html, machine)?;
    html.push_str("</body></html>\n");
    Ok(())
}

fn tables(html: &mut String, machine: &Machine) -> fmt::Result {
    html.push_str("<h2>Tables</h2>");
    let datasets = &machine.catalog().datasets;
    if datasets.is_empty() {
        html.push_str(
            "<p class=\"dim\">No dataset. Create one with <code>--dataset NAME</code> or by REST.</p>",
        );
        return Ok(());
    }
    table(
        html,
        &["Table", "Location", "Columns", "#Visible rows", "Created"],
    )?;
    for (name, dataset) in datasets {
        if dataset.tables.is_empty() {
            write!(
                html,
                "<tr><td><code>{}</code></td><td>{}</td><td class=\"dim\" colspan=\"3\">no table</td></tr>",
                Text(&name.to_string()),
                Text(&dataset.location)
            )?;
        }
        for (id, table) in &dataset.tables {
            let columns: Vec<_> = table
                .schema
                .columns
                .iter()
                .map(|column| format!("{} {}", column.name, column.kind.sql_name()))
                .collect();
            write!(
                html,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                Text(&TableRef::new(&name.project, &name.dataset, id).to_string()),
                Text(&dataset.location),
                Text(&columns.join(", ")),
                table.row_count(),
                Time(table.created_ms),
            )?;
        }
    }
    html.push_str("</table></div>");
    Ok(())
}

fn streams(html: &mut String, mut streams: Vec<StreamInfo>, now: Millis) -> fmt::Result {
    html.push_str("<h2>Write streams</h2>");
    if streams.is_empty() {
        html.push_str("<p class=\"dim\">None.</p>");
        return Ok(());
    }
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.traffic_ms));
    table(
        html,
        &[
            "Stream",
            "Kind",
            "#End",
            "#Visible",
            "#Age",
            "#Last append",
            "State",
        ],
    )?;
    for stream in streams.iter().take(STREAMS) {
        write!(
            html,
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{} ago</td><td>{}</td></tr>",
            Text(&stream.name),
            match stream.kind {
                StreamKind::Committed => "COMMITTED",
                StreamKind::Buffered => "BUFFERED",
                StreamKind::Pending => "PENDING",
            },
            stream.end,
            stream.flushed,
            Span(now - stream.created_ms),
            Span(now - stream.traffic_ms),
            state(stream),
        )?;
    }
    html.push_str("</table></div>");
    if streams.len() > STREAMS {
        write!(html, "<p class=\"dim\">and {} more</p>", streams.len() - STREAMS)?;
    }
    Ok(())
}

fn state(stream: &StreamInfo) -> String {
    let states = [
        (stream.connected, "connected"),
        (stream.finalized, "finalized"),
        (stream.committed, "committed"),
    ];
    let states: Vec<_> = states
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, name)| *name)
        .collect();
    if states.is_empty() {
        "idle".to_owned()
    } else {
        states.join(", ")
    }
}

fn faults(html: &mut String, machine: &Machine) -> fmt::Result {
    let rules = machine.faults();
    if rules.is_empty() {
        return Ok(());
    }
    html.push_str("<h2>Faults</h2>");
    table(html, &["Rule", "#Matched", "#Fired"])?;
    for report in rules {
        let rule = serde_json::to_string(&report.rule).unwrap_or_default();
        write!(
            html,
            "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Text(&rule),
            report.seen,
            report.fired
        )?;
    }
    html.push_str("</table></div>");
    Ok(())
}

fn exchanges(html: &mut String, machine: &Machine) -> fmt::Result {
    html.push_str("<h2>Recent requests</h2>");
    if machine.exchanges().next().is_none() {
        html.push_str("<p class=\"dim\">None over gRPC yet.</p>");
        return Ok(());
    }
    table(html, &["Time", "Call", "Table or stream", "Request", "Answer"])?;
    for Exchange {
        at_ms,
        rpc,
        target,
        request,
        answer,
        refused,
        transport: _,
    } in machine.exchanges().rev()
    {
        write!(
            html,
            "<tr><td class=\"n\">{}</td><td>{rpc:?}</td><td><code>{}</code></td><td>{}</td><td{}>{}</td></tr>",
            Time(*at_ms),
            Text(target),
            Text(request),
            if *refused { " class=\"bad\"" } else { "" },
            Text(answer),
        )?;
    }
    html.push_str("</table></div>");
    Ok(())
}

/// Begins a table; a `#` before a head puts its numbers to the right.
fn table(html: &mut String, heads: &[&str]) -> fmt::Result {
    html.push_str("<div class=\"wide\"><table><tr>");
    for head in heads {
        match head.strip_prefix('#') {
            Some(head) => write!(html, "<th class=\"n\">{head}</th>")?,
            None => write!(html, "<th>{head}</th>")?,
        }
    }
    html.push_str("</tr>");
    Ok(())
}

/// Text, safe in HTML.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            c => f.write_char(c),
        })
    }
}

/// A time of the emulator's clock.
struct Time(Millis);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_millis(self.0) {
            Some(time) => write!(f, "{}", time.format("%Y-%m-%d %H:%M:%S%.3f")),
            None => write!(f, "{} ms", self.0),
        }
    }
}

/// How long something took, in its two greatest units.
struct Span(Millis);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0) / 1000;
        match (
            seconds / 86_400,
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60,
        ) {
            (0, 0, 0, s) => write!(f, "{s} s"),
            (0, 0, m, s) => write!(f, "{m} min {s} s"),
            (0, h, m, _) => write!(f, "{h} h {m} min"),
            (d, h, _, _) => write!(f, "{d} d {h} h"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bigquery_write_proto::wire::{
        CreateWriteStreamRequest, FlushRowsRequest, WriteStream, write_stream::Type,
    };

    use super::*;
    use crate::catalog::DatasetRef;
    use crate::machine::CallMeta;
    use crate::schema::{Column, Kind, Mode, Schema};

    const NOW: Millis = 1_700_000_000_000;

    /// The cells of each row of each table.
    fn cells(html: &str) -> Vec<Vec<String>> {
        let rows = html.split("<tr>").skip(1);
        rows.map(|row| {
            let row = row.split("</tr>").next().unwrap_or_default();
            let cells = row.split("</td>").filter(|cell| cell.contains("<td"));
            cells.map(text).collect::<Vec<_>>()
        })
        .filter(|row| !row.is_empty())
        .collect()
    }

    fn text(html: &str) -> String {
        let parts = html
            .split('<')
            .map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        parts.collect()
    }

    #[test]
    fn the_page_shows_tables_streams_and_requests() {
        let mut machine = Machine::default();
        assert!(render(&machine, NOW, None).contains("No dataset."));
        let table = TableRef::new("p", "d", "t");
        machine
            .create_dataset(&DatasetRef::new("p", "d"), "EU", Default::default(), NOW)
            .unwrap();
        let columns = vec![Column::new("n", Kind::Int64, Mode::Nullable)];
        machine
            .create_table(&table, Schema { columns }, Default::default(), NOW)
            .unwrap();
        let meta = CallMeta {
            routing: Some(format!("parent={}", table.path())),
            ..CallMeta::default()
        };
        let create = CreateWriteStreamRequest {
            parent: table.path(),
            write_stream: Some(WriteStream {
                r#type: Type::Buffered as i32,
                ..WriteStream::default()
            }),
        };
        let stream = machine
            .create_write_stream(NOW, &meta, &create)
            .result
            .unwrap()
            .name;
        let flush = FlushRowsRequest {
            write_stream: stream.clone(),
            offset: Some(7),
        };
        machine.flush_rows(NOW + 1, &meta, &flush).result.unwrap_err();
        let html = render(&machine, NOW + 65_000, Some(0));
        assert!(html.contains("<meta http-equiv=\"refresh\" content=\"1\">"));
        let refused = format!("OutOfRange: Offset 7 is beyond the end of the stream Entity: {stream}");
        let expected = [
            vec!["p:d.t", "EU", "n INT64", "0", "2023-11-14 22:13:20.000"],
            vec![
                &stream,
                "BUFFERED",
                "0",
                "0",
                "1 min 5 s",
                "1 min 5 s ago",
                "idle",
            ],
            vec![
                "2023-11-14 22:13:20.001",
                "FlushRows",
                &stream,
                "offset 7",
                &refused,
            ],
            vec![
                "2023-11-14 22:13:20.000",
                "CreateWriteStream",
                "projects/p/datasets/d/tables/t",
                "Buffered",
                "OK",
            ],
        ];
        assert_eq!(cells(&html), expected);
    }

    #[test]
    fn spans_are_told_in_their_two_greatest_units() {
        let said = [999, 61_000, 3_700_000, 90_000_000, -5].map(|ms| Span(ms).to_string());
        assert_eq!(said, ["0 s", "1 min 1 s", "1 h 1 min", "1 d 1 h", "0 s"]);
    }

    #[test]
    fn nothing_of_a_name_is_taken_as_html() {
        assert_eq!(
            Text("<a href='x'>\"&").to_string(),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;"
        );
    }
}
