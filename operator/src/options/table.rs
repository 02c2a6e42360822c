//! The one table of the connector's options: parsing, help, the docs page and the tests come from it (design.md section 9).

use std::fmt::Write as _;
use std::time::Duration;

use super::layout::{CLUSTER, LABELS, RANGES};

/// One option of the connector.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Name as written in `WITH (...)`.
    pub name: &'static str,
    /// What holds when it is not given.
    pub default: OptionDefault,
    /// What it may be.
    pub accepts: Accepts,
    /// What it means, in one sentence.
    pub meaning: &'static str,
    /// Whether it can be used yet.
    pub step: Step,
}

/// What holds when an option is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionDefault {
    /// It must be given.
    Required,
    /// Nothing.
    None,
    /// This value, read as if it had been given.
    Value(&'static str),
}

/// What an option may be.
#[derive(Clone, Copy, Debug)]
pub enum Accepts {
    /// One of these words.
    OneOf(&'static [Choice]),
    /// A size such as `2 MiB`.
    Bytes {
        /// Smallest size, in bytes.
        min: u64,
        /// Largest size, in bytes.
        max: u64,
    },
    /// A duration such as `200 ms` or `5 minutes`.
    Time {
        /// Shortest duration.
        min: Duration,
        /// Longest duration.
        max: Duration,
    },
    /// A whole number.
    Count {
        /// Smallest number.
        min: u64,
        /// Largest number.
        max: u64,
    },
    /// `http://` or `https://`, a host, perhaps a port.
    Url,
    /// Text; what it must look like, in words.
    Text(&'static str),
}

/// One word an option accepts.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The word.
    pub value: &'static str,
    /// Whether it can be used yet.
    pub step: Step,
}

/// Since when an option works; what comes later is known and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It works.
    Now,
    /// It comes with change data capture.
    Changes,
    /// It comes with several streams per subtask.
    Speed,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// A hundred years of 365.25 days.
const CENTURY: Duration = Duration::from_secs(36_525 * 24 * 3600);

const fn now(value: &'static str) -> Choice {
    Choice {
        value,
        step: Step::Now,
    }
}

const fn later(value: &'static str, step: Step) -> Choice {
    Choice { value, step }
}

const fn spec(
    name: &'static str,
    default: OptionDefault,
    accepts: Accepts,
    step: Step,
    meaning: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        default,
        accepts,
        meaning,
        step,
    }
}

/// Every option, in the order of the docs page.
pub const OPTIONS: &[OptionSpec] = {
    use Accepts::{Bytes, Count, OneOf, Text, Time, Url};
    use OptionDefault::{None, Required, Value};
    use Step::{Changes, Now, Speed};
    &[
        spec(
            "connector",
            Value("bigquery"),
            OneOf(&[now("bigquery")]),
            Now,
            "This connector.",
        ),
        spec(
            "type",
            Value("sink"),
            OneOf(&[now("sink")]),
            Now,
            "Only sinks; BigQuery is not read.",
        ),
        spec(
            "project",
            Required,
            Text("a project id"),
            Now,
            "Project of the table.",
        ),
        spec(
            "dataset",
            Required,
            Text("a dataset id"),
            Now,
            "Dataset of the table.",
        ),
        spec(
            "table",
            Required,
            Text("a table id, or `table$YYYYMMDD` for a daily ingestion-time table"),
            Now,
            "Table the rows go to.",
        ),
        spec(
            "write.mode",
            Value("exactly_once"),
            OneOf(&[
                now("exactly_once"),
                now("at_least_once"),
                later("upsert", Changes),
                later("change_log", Changes),
            ]),
            Now,
            "What is promised: each row exactly once, visible at checkpoints; or at least once, visible as soon as BigQuery has it, and twice after a lost answer or a restart.",
        ),
        spec(
            "write.format",
            Value("arrow"),
            OneOf(&[now("arrow"), now("proto")]),
            Now,
            "How rows travel: as Arrow record batches, or each as a protobuf message.",
        ),
        spec(
            "write.append.bytes",
            Value("2 MiB"),
            Bytes {
                min: 64 * KIB,
                max: 9 * MIB,
            },
            Now,
            "Rows are joined into requests of about this size; parts of BigQuery refuse more than 10 MB.",
        ),
        spec(
            "write.append.linger",
            Value("200 ms"),
            Time {
                min: Duration::ZERO,
                max: Duration::from_secs(60),
            },
            Now,
            "A smaller request is sent after this time.",
        ),
        spec(
            "write.inflight.bytes",
            Value("64 MiB"),
            Bytes {
                min: 64 * KIB,
                max: 1024 * MIB,
            },
            Now,
            "Most bytes sent and not yet acknowledged, per subtask; the pipeline waits while they are out.",
        ),
        spec(
            "write.inflight.requests",
            Value("256"),
            Count { min: 1, max: 1000 },
            Now,
            "Most requests sent and not yet acknowledged, per subtask.",
        ),
        spec(
            "write.inflight.time",
            Value("2 s"),
            Time {
                min: Duration::from_millis(100),
                max: Duration::from_secs(60),
            },
            Now,
            "No more is sent than the measured acknowledgement rate drains in this time, so that a barrier is short.",
        ),
        spec(
            "write.streams",
            Value("1"),
            Count { min: 1, max: 16 },
            Speed,
            "Write streams per subtask.",
        ),
        spec(
            "write.sub_microseconds",
            Value("truncate"),
            OneOf(&[now("truncate"), now("refuse")]),
            Now,
            "What happens to the nanoseconds BigQuery cannot hold: cut off and counted, or the row is refused.",
        ),
        spec(
            "write.missing_values",
            Value("null"),
            OneOf(&[now("null"), now("default")]),
            Now,
            "What a NULL becomes in a column with a default value: NULL, or the default, arrays included (NULL and missing are one thing in a row). A column the pipeline does not write always gets its default.",
        ),
        spec(
            "row_errors",
            Value("fail"),
            OneOf(&[now("fail"), now("dead_letter")]),
            Now,
            "What happens to a row that does not fit the table, or that BigQuery refuses: the pipeline fails, or the row goes to the dead-letter table, in the same checkpoint as its neighbours.",
        ),
        spec(
            "dead_letter.table",
            None,
            Text("a table id"),
            Now,
            "Table for refused rows, in the dataset of the table; required with row_errors = 'dead_letter'. Its columns are those of docs/dead_letters.md; table.create holds for it too.",
        ),
        spec(
            "dead_letter.max_ratio",
            Value("0.1"),
            Text("a number from 0 to 1"),
            Now,
            "The pipeline fails when more than this part of the last 10,000 rows of a subtask was refused, from 100 refused rows on.",
        ),
        spec(
            "table.create",
            Value("never"),
            OneOf(&[now("never"), now("if_missing")]),
            Now,
            "Whether a missing table is created from the pipeline's columns: NOT NULL becomes REQUIRED, PRIMARY KEY a primary key that BigQuery does not enforce; needs bigquery.tables.create.",
        ),
        spec(
            "table.partition_by",
            None,
            Text("a column"),
            Now,
            "Column that a created table is partitioned by: DATE, TIMESTAMP or DATETIME, or INT64 with table.partition_range.",
        ),
        spec(
            "table.partition_type",
            None,
            OneOf(&[now("hour"), now("day"), now("month"), now("year")]),
            Now,
            "Length of a time partition of a created table, a day if only table.partition_by is given; without table.partition_by by the time of ingestion.",
        ),
        spec(
            "table.partition_range",
            None,
            RANGES,
            Now,
            "Ranges of table.partition_by that are the partitions of a created table.",
        ),
        spec(
            "table.partition_expiration",
            None,
            Time {
                min: HOUR,
                max: CENTURY,
            },
            Now,
            "Age at which a time partition of a created table is dropped.",
        ),
        spec(
            "table.cluster_by",
            None,
            CLUSTER,
            Now,
            "Columns a created table is clustered by, in this order.",
        ),
        spec(
            "table.description",
            None,
            Text("text"),
            Now,
            "Description of a created table.",
        ),
        spec("table.labels", None, LABELS, Now, "Labels of a created table."),
        spec(
            "table.max_staleness",
            None,
            Text("a duration"),
            Changes,
            "How far behind a reader of a created change table may be.",
        ),
        spec(
            "schema.update",
            Value("none"),
            Text("`none` or `add_columns`"),
            Now,
            "How the sink may change a table at its start: columns that the pipeline writes and the table lacks are added, nullable; needs bigquery.tables.update.",
        ),
        spec(
            "cdc.sequence",
            None,
            Text("a column"),
            Changes,
            "Column that orders changes of one key.",
        ),
        spec(
            "cdc.delete_flag",
            None,
            Text("a column"),
            Changes,
            "Column that says a row is a deletion.",
        ),
        spec(
            "cdc.tombstone",
            Value("ignore"),
            OneOf(&[later("ignore", Changes), later("delete", Changes)]),
            Changes,
            "What a tombstone does.",
        ),
        spec(
            "cdc.deletes",
            Value("hard"),
            OneOf(&[later("hard", Changes), later("soft", Changes)]),
            Changes,
            "Whether deletions remove rows.",
        ),
        spec(
            "cdc.truncate",
            Value("fail"),
            OneOf(&[later("fail", Changes), later("ignore", Changes)]),
            Changes,
            "What a truncation of the source does.",
        ),
        spec(
            "append.timeout",
            Value("5 min"),
            Time {
                min: SECOND,
                max: HOUR,
            },
            Now,
            "Budget for getting a request acknowledged, over all its attempts.",
        ),
        spec(
            "commit.timeout",
            Value("10 min"),
            Time {
                min: SECOND,
                max: Duration::from_secs(6 * 3600),
            },
            Now,
            "Budget for publishing a checkpoint, over all attempts.",
        ),
        spec(
            "quota.timeout",
            Value("15 min"),
            Time {
                min: SECOND,
                max: Duration::from_secs(6 * 3600),
            },
            Now,
            "Budget while BigQuery refuses for quota; a regional bucket can take ten minutes to refill.",
        ),
        spec(
            "commit.unprovable",
            Value("fail"),
            OneOf(&[now("fail"), now("assume_visible"), now("accept_loss")]),
            Now,
            "What happens when a commit cannot be shown to be visible, for example because its stream expired.",
        ),
        spec(
            "credentials",
            Value("adc"),
            Text(
                "`adc` or the path of a service-account key file; `{{ NAME }}` stands for an environment variable",
            ),
            Now,
            "Who the sink is: Google's application default credentials, or a key. Never looked up for http endpoints.",
        ),
        spec(
            "quota_project",
            None,
            Text("a project id"),
            Now,
            "Project that quota and API use count for.",
        ),
        spec(
            "endpoint",
            None,
            OneOf(&[now("emulator")]),
            Now,
            "`emulator`: the command-line tool starts one in its process and sets the endpoints; other hosts refuse it.",
        ),
        spec(
            "endpoint.grpc",
            Value("https://bigquerystorage.googleapis.com"),
            Url,
            Now,
            "Where rows are written (Storage Write API).",
        ),
        spec(
            "endpoint.http",
            Value("https://bigquery.googleapis.com"),
            Url,
            Now,
            "Where tables are created and changed (REST API).",
        ),
        spec(
            "endpoint.ca",
            None,
            Text("the path of a PEM file"),
            Now,
            "Certificate authorities trusted for endpoint.grpc instead of the system's.",
        ),
        spec(
            "endpoint.insecure",
            Value("false"),
            OneOf(&[now("false"), now("true")]),
            Now,
            "Allows http:// endpoints beyond this machine: rows travel readable by everyone in between.",
        ),
    ]
};

impl OptionSpec {
    /// The option of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        OPTIONS.iter().find(|spec| spec.name == name)
    }

    /// The known option whose name is nearest, if any is near.
    #[must_use]
    pub fn nearest(name: &str) -> Option<&'static Self> {
        let name = name.to_lowercase();
        OPTIONS
            .iter()
            .map(|spec| (strsim::normalized_damerau_levenshtein(&name, spec.name), spec))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .filter(|(similarity, _)| *similarity >= 0.5)
            .map(|(_, spec)| spec)
    }
}

impl Accepts {
    /// What is accepted, in words; words of later steps are left out.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::OneOf(choices) => {
                let usable: Vec<String> = choices
                    .iter()
                    .filter(|choice| choice.step == Step::Now)
                    .map(|choice| format!("'{}'", choice.value))
                    .collect();
                usable.join(" or ")
            }
            Self::Bytes { min, max } => {
                format!(
                    "a size from {} to {}, such as '2 MiB'",
                    show_bytes(*min),
                    show_bytes(*max)
                )
            }
            Self::Time { min, max } => format!(
                "a duration from {} to {}, such as '200 ms' or '5 minutes'",
                humantime::format_duration(*min),
                humantime::format_duration(*max)
            ),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Url => "an address such as 'https://host' or 'http://127.0.0.1:9060'".to_owned(),
            Self::Text(what) => (*what).to_owned(),
        }
    }
}

/// The table as Markdown: what works first, then what is known and not yet supported.
#[must_use]
pub fn describe() -> String {
    let mut page = String::from(
        "# Options of the sink\n\n| option | default | accepts | meaning |\n| --- | --- | --- | --- |\n",
    );
    for spec in OPTIONS.iter().filter(|spec| spec.step == Step::Now) {
        let default = match spec.default {
            OptionDefault::Required => "required".to_owned(),
            OptionDefault::None => "none".to_owned(),
            OptionDefault::Value(value) => format!("`{value}`"),
        };
        let accepts = spec.accepts.describe().replace('\'', "`");
        let OptionSpec { name, meaning, .. } = spec;
        writeln!(page, "| `{name}` | {default} | {accepts} | {meaning} |").expect("a String takes all text");
    }
    let later: Vec<String> = OPTIONS
        .iter()
        .filter(|spec| spec.step != Step::Now)
        .map(|spec| format!("`{}`", spec.name))
        .collect();
    writeln!(page, "\nKnown and not yet supported: {}.", later.join(", ")).expect("a String takes all text");
    page
}

fn show_bytes(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{} KiB", bytes / KIB)
    }
}
