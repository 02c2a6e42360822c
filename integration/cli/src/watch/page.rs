//! The page at `/`: a pipeline, how far it is, its latest checkpoints and what went wrong.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::samples::Rates;
use super::snapshot::{Checkpoint, Snapshot, Subtask};

/// Checkpoints shown.
const CHECKPOINTS: usize = 20;
/// Write streams shown.
const STREAMS: usize = 100;
/// Faults shown.
const TROUBLES: usize = 20;
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--dim:#6b6b6b;--ink:#1a66c9;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--dim:#a3a3a3;--ink:#8ab4f8;--bad:#f2b8b5}}\
*{box-sizing:border-box}\
body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:1rem}\
h1{font-size:1.25rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:1.6rem 0 .5rem}\
p{margin:.3rem 0}.dim{color:var(--dim)}.bad{color:var(--bad)}a{color:var(--ink)}\
.row{display:flex;flex-wrap:wrap;gap:.6rem}.card{border:1px solid var(--line);border-radius:.5rem;padding:.55rem .8rem;flex:1 1 9rem;min-width:0}\
.card b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}.card span{color:var(--dim);font-size:.85rem}\
ol.graph{list-style:none;padding:0;margin:0;display:flex;flex-wrap:wrap;gap:.6rem}\
ol.graph li{border:1px solid var(--line);border-radius:.5rem;padding:.55rem .8rem;flex:1 1 14rem;min-width:0;overflow-wrap:anywhere}\
ol.graph li+li::before{content:'\\2192';color:var(--dim);margin-right:.4rem}\
figure{margin:0;flex:1 1 15rem;min-width:0;border:1px solid var(--line);border-radius:.5rem;padding:.55rem .8rem}\
figcaption{font-size:.85rem;color:var(--dim)}svg{width:100%;height:4.5rem;display:block}\
polyline{fill:none;stroke:var(--ink);stroke-width:1.5;vector-effect:non-scaling-stroke}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);\
vertical-align:top;overflow-wrap:anywhere}th{font-weight:600;background:var(--soft)}\
.n{text-align:right;font-variant-numeric:tabular-nums}code{font:13px ui-monospace,monospace}\
@media(max-width:44rem){thead{position:absolute;clip-path:inset(50%)}tr{display:block;border-bottom:1px solid var(--line);padding:.4rem 0}\
td,td.n{display:flex;justify-content:space-between;gap:1rem;text-align:right;border:0;padding:.1rem 0}\
td::before{content:attr(data-label);color:var(--dim);flex:none;text-align:left}}";

/// The page; `refresh` says after how many seconds the browser asks again, 0 that it does not.
pub(super) fn render(snapshot: &Snapshot, refresh: u16) -> Markup {
    let file = snapshot.pipeline.file();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if refresh > 0 { meta http-equiv="refresh" content=(refresh); }
                title { (file) " · arroyo-bigquery" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (file) }
                p.dim {
                    (snapshot.phase) " · up for " (span(snapshot.running_seconds)) " · each row " (snapshot.pipeline.guarantee())
                    " · " (snapshot.now) " · "
                    @if refresh > 0 { a href="/?refresh=0" { "stop refreshing" } } @else { a href="/" { "refresh" } }
                }
                main {
                    (figures(snapshot))
                    (graph(snapshot))
                    (plots(&snapshot.rates))
                    (streams(&snapshot.subtasks))
                    (checkpoints(&snapshot.checkpoints))
                    (failures(snapshot))
                    (troubles(&snapshot.subtasks))
                }
            }
        }
    }
}

fn figures(snapshot: &Snapshot) -> Markup {
    let cards = [
        ("rows read", count(snapshot.rows_read)),
        ("rows visible", count(snapshot.rows_visible)),
        (
            "rows read a second",
            count(snapshot.rows_per_second.round() as u64),
        ),
        ("rows not visible yet", count(snapshot.rows_waiting)),
        ("the oldest of them waits", after(snapshot.oldest_waiting_seconds)),
        ("newest confirmed checkpoint", snapshot.epoch.to_string()),
        ("restarts", snapshot.restarts.to_string()),
    ];
    html! {
        section aria-label="Figures" {
            div.row { @for (name, value) in cards { div.card { b { (value) } span { (name) } } } }
        }
    }
}

fn graph(snapshot: &Snapshot) -> Markup {
    html! {
        section {
            h2 { "Pipeline" }
            ol.graph {
                @for node in snapshot.pipeline.graph() {
                    li {
                        b { (node.name) } " " span.dim { (node.kind) @if node.instances > 1 { " × " (node.instances) } }
                        br; code { (node.what) }
                    }
                }
            }
        }
    }
}

fn plots(rates: &Rates) -> Markup {
    let plots = [
        ("rows read a second", &rates.rows_read),
        ("rows that became visible a second", &rates.rows_visible),
        ("rows acknowledged and not visible yet", &rates.rows_waiting),
    ];
    html! {
        section {
            h2 { "Last minutes" }
            div.row { @for (name, values) in plots { (plot(name, values)) } }
        }
    }
}

/// A line from the oldest to the newest value, over the largest.
fn plot(name: &str, values: &[f64]) -> Markup {
    let most = values.iter().copied().fold(0.0, f64::max);
    let newest = values.last().copied().unwrap_or_default();
    let last = values.len().saturating_sub(1).max(1) as f64;
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(at, value)| {
            let x = at as f64 / last * 300.0;
            let y = 58.0 - value / most.max(1.0) * 56.0;
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let told = format!(
        "{name}: now {}, at most {}",
        count(newest.round() as u64),
        count(most.round() as u64)
    );
    html! {
        figure {
            svg viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label=(told) {
                polyline points=(points.join(" "));
            }
            figcaption { (told) }
        }
    }
}

fn streams(subtasks: &[Subtask]) -> Markup {
    let rows: usize = subtasks.iter().map(|subtask| subtask.streams.len()).sum();
    let rows_of = subtasks
        .iter()
        .flat_map(|subtask| subtask.streams.iter().map(move |stream| (subtask, stream)));
    html! {
        section {
            h2 { "Write streams" }
            @if rows == 0 { p.dim { "None: the first rows make them." } } @else {
                table {
                    thead { tr {
                        th.n { "Subtask" } th { "Stream" } th.n { "Acknowledged to" } th.n { "Visible to" } th { "State" }
                    } }
                    tbody { @for (subtask, stream) in rows_of.take(STREAMS) { tr {
                        td.n data-label="Subtask" { (subtask.subtask) }
                        td data-label="Stream" { code { (stream.stream) } @if stream.is_for_dead_letters { " (dead letters)" } }
                        td.n data-label="Acknowledged to" { (count(stream.next_offset)) }
                        td.n data-label="Visible to" { (count(stream.flushed)) }
                        td data-label="State" { (stream.phase) }
                    } } }
                }
                @if rows > STREAMS { p.dim { "and " (rows - STREAMS) " more" } }
            }
        }
    }
}

fn checkpoints(checkpoints: &[Checkpoint]) -> Markup {
    html! {
        section {
            h2 { "Checkpoints" }
            @if checkpoints.is_empty() { p.dim { "None yet." } } @else {
                table {
                    thead { tr {
                        th.n { "Epoch" } th { "Began" } th.n { "Prepared" } th.n { "Durable" } th.n { "Committed" } th.n { "Rows" }
                        th.n { "State" }
                    } }
                    tbody { @for checkpoint in checkpoints.iter().take(CHECKPOINTS) { tr {
                        td.n data-label="Epoch" { (checkpoint.epoch) }
                        td data-label="Began" { (checkpoint.began) @if checkpoint.replayed { " (replayed)" } }
                        td.n data-label="Prepared" { (after(checkpoint.prepared_seconds)) }
                        td.n data-label="Durable" { (after(checkpoint.durable_seconds)) }
                        td.n data-label="Committed" { (after(checkpoint.committed_seconds)) }
                        td.n data-label="Rows" { (count(checkpoint.rows)) }
                        td.n data-label="State" { (count(checkpoint.state_bytes)) " B" }
                    } } }
                }
            }
        }
    }
}

fn failures(snapshot: &Snapshot) -> Markup {
    html! {
        section {
            h2 { "Failures" }
            @if snapshot.failures.is_empty() { p.dim { "None." } } @else {
                table {
                    thead { tr { th { "Time" } th { "Error" } th { "Then" } } }
                    tbody { @for failed in &snapshot.failures { tr {
                        td data-label="Time" { (failed.at) }
                        td.bad data-label="Error" { (failed.error) }
                        td data-label="Then" {
                            @match failed.restart_after_seconds {
                                Some(seconds) => { "restarted after " (after(Some(seconds))) },
                                None => { "ended" },
                            }
                        }
                    } } }
                }
            }
        }
    }
}

fn troubles(subtasks: &[Subtask]) -> Markup {
    let mut troubles: Vec<_> = subtasks
        .iter()
        .flat_map(|subtask| subtask.troubles.iter().map(|trouble| (subtask.subtask, trouble)))
        .collect();
    troubles.sort_by(|(_, one), (_, other)| other.at.cmp(&one.at));
    html! {
        section {
            h2 { "Faults the sink went on after" }
            @if troubles.is_empty() { p.dim { "None." } } @else {
                table {
                    thead { tr { th { "Time" } th.n { "Subtask" } th { "Fault" } } }
                    tbody { @for (subtask, trouble) in troubles.iter().take(TROUBLES) { tr {
                        td data-label="Time" { (trouble.at) }
                        td.n data-label="Subtask" { (subtask) }
                        td data-label="Fault" { (trouble.text) }
                    } } }
                }
            }
        }
    }
}

/// A number with its thousands apart.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A short time; a dash where it is not over.
fn after(seconds: Option<f64>) -> String {
    match seconds {
        None => "–".into(),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) if seconds < 100.0 => format!("{seconds:.1} s"),
        Some(seconds) => span(seconds),
    }
}

/// A long time, to the second.
fn span(seconds: f64) -> String {
    humantime::format_duration(std::time::Duration::from_secs(seconds as u64)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_told_as_people_read_them() {
        let counts = [0, 7, 999, 1_000, 27_004, 1_234_567].map(count);
        assert_eq!(counts, ["0", "7", "999", "1,000", "27,004", "1,234,567"]);
        let times = [None, Some(0.0042), Some(1.25), Some(3_725.0)].map(after);
        assert_eq!(times, ["–", "4 ms", "1.2 s", "1h 2m 5s"]);
    }

    #[test]
    fn a_plot_goes_from_its_oldest_to_its_newest_value_over_the_largest() {
        let shown = plot("rows", &[0.0, 50.0, 100.0]).into_string();
        assert!(
            shown.contains("points=\"0.0,58.0 150.0,30.0 300.0,2.0\""),
            "{shown}"
        );
        assert!(shown.contains("rows: now 100, at most 100"), "{shown}");
        let empty = plot("rows", &[]).into_string();
        assert!(empty.contains("rows: now 0, at most 0"), "{empty}");
    }
}
