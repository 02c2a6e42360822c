//! The connector's options, read and checked before the first row: one error list, never the first error only.

mod layout;
mod row_errors;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bigquery_write_proto::names::{DatasetId, NameError, ProjectId, TableId, TableName};

pub use self::layout::{PartitionUnit, Partitioning, SchemaUpdate, TableLayout};
pub use self::row_errors::RowErrors;
pub use self::table::{Accepts, Choice, OPTIONS, OptionDefault, OptionSpec, Step, describe};
pub use self::values::Endpoint;
pub use bigquery_write_proto::rows::{Format, MissingValues, SubMicroseconds};

/// The sink's options, typed and within their bounds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SinkOptions {
    /// `project`, `dataset`, `table`.
    pub table: TableName,
    /// `write.mode`.
    pub mode: WriteMode,
    /// `write.format`.
    pub format: Format,
    /// `write.append.bytes`.
    pub append_bytes: usize,
    /// `write.append.linger`.
    pub append_linger: Duration,
    /// `write.inflight.bytes`, at least `append_bytes`.
    pub inflight_bytes: usize,
    /// `write.inflight.requests`.
    pub inflight_requests: usize,
    /// `write.inflight.time`.
    pub inflight_time: Duration,
    /// `write.sub_microseconds`.
    pub sub_microseconds: SubMicroseconds,
    /// `write.missing_values`.
    pub missing_values: MissingValues,
    /// `row_errors`, `dead_letter.*`.
    pub row_errors: RowErrors,
    /// `table.create`.
    pub create: CreateTable,
    /// `table.*`: what a created table has beside its columns.
    pub layout: TableLayout,
    /// `schema.update`.
    pub schema_update: SchemaUpdate,
    /// Columns of the primary key that a created table declares, in order. No option: `PRIMARY KEY` in the pipeline's CREATE TABLE
    /// says it, and the host sets it.
    pub primary_key: Vec<String>,
    /// `append.timeout`: budget over all attempts of one request.
    pub append_timeout: Duration,
    /// `commit.timeout`: budget over all attempts of one commit.
    pub commit_timeout: Duration,
    /// `quota.timeout`: budget while BigQuery refuses for quota.
    pub quota_timeout: Duration,
    /// `commit.unprovable`.
    pub unprovable: UnprovableCommit,
    /// `credentials`.
    pub credentials: Credentials,
    /// `quota_project`.
    pub quota_project: Option<ProjectId>,
    /// `endpoint.*`.
    pub endpoints: Endpoints,
}

/// `write.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteMode {
    /// Every row becomes visible exactly once, at checkpoints.
    ExactlyOnce,
    /// Every row becomes visible at least once, when BigQuery acknowledges it; twice after a lost answer or a restart.
    AtLeastOnce,
}

impl WriteMode {
    /// What is promised, in words.
    #[must_use]
    pub fn guarantee(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly once",
            Self::AtLeastOnce => "at least once",
        }
    }
}

/// `table.create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateTable {
    /// A missing table is an error.
    Never,
    /// A missing table is created from the pipeline's columns.
    IfMissing,
}

/// `commit.unprovable`: what happens when a commit cannot be shown to be visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnprovableCommit {
    /// The pipeline fails.
    Fail,
    /// It counts as done, logged and counted.
    AssumeVisible,
    /// Its rows count as lost, logged and counted.
    AcceptLoss,
}

/// `credentials`, as written: environment variables are read where the sink runs, not where the SQL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Google's application default credentials.
    Adc,
    /// The path of a service-account key file; `{{ NAME }}` in it stands for an environment variable, whose value may also
    /// be the key itself.
    File(String),
}

/// `endpoint.grpc`, `endpoint.http`, `endpoint.ca`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Storage Write API.
    pub grpc: Endpoint,
    /// REST API.
    pub http: Endpoint,
    /// Authorities trusted for `grpc` instead of the system's, a PEM file.
    pub ca: Option<PathBuf>,
}

/// Something wrong with one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionProblem {
    /// The option's name as given, or the name of the missing one.
    pub option: String,
    /// What is wrong and what to do, as a sentence that names the option.
    pub message: String,
}

impl fmt::Display for OptionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Addresses of an emulator that a host has started (or, for a check, would start).
#[derive(Clone, Copy, Debug)]
pub struct Emulator<'a> {
    /// Its `endpoint.grpc`.
    pub grpc: &'a str,
    /// Its `endpoint.http`.
    pub http: &'a str,
}

impl SinkOptions {
    /// Reads the options; all problems at once. `endpoint = 'emulator'` is refused: see [`SinkOptions::parse_with_emulator`].
    pub fn parse(options: &[(String, String)]) -> Result<Self, Vec<OptionProblem>> {
        Reader::new(options, None).read()
    }

    /// As [`SinkOptions::parse`], for a host that resolves `endpoint = 'emulator'` to the given addresses.
    pub fn parse_with_emulator(
        options: &[(String, String)],
        emulator: Emulator<'_>,
    ) -> Result<Self, Vec<OptionProblem>> {
        Reader::new(options, Some(emulator)).read()
    }

    /// Whether the options say `endpoint = 'emulator'`.
    #[must_use]
    pub fn wants_emulator(options: &[(String, String)]) -> bool {
        options
            .iter()
            .any(|(name, value)| name == "endpoint" && value.trim() == "emulator")
    }
}

/// Collects values and problems of one `WITH (...)`.
struct Reader<'a> {
    given: BTreeMap<&'a str, &'a str>,
    emulator: Option<Emulator<'a>>,
    problems: Vec<OptionProblem>,
}

impl<'a> Reader<'a> {
    fn new(options: &'a [(String, String)], emulator: Option<Emulator<'a>>) -> Self {
        let mut reader = Self {
            given: BTreeMap::new(),
            emulator,
            problems: Vec::new(),
        };
        for (name, value) in options {
            if reader.given.insert(name, value).is_some() {
                reader.problem(name, format!("option '{name}' is given twice"));
            }
            reader.check_known(name, value);
        }
        reader
    }

    fn read(mut self) -> Result<SinkOptions, Vec<OptionProblem>> {
        let table = self.table();
        let append_bytes = self.size("write.append.bytes");
        let inflight_bytes = self.size("write.inflight.bytes");
        if inflight_bytes < append_bytes {
            let message = "option 'write.inflight.bytes' must not be smaller than 'write.append.bytes'";
            self.problem("write.inflight.bytes", message.to_owned());
        }
        let create = match self.word("table.create") {
            "if_missing" => CreateTable::IfMissing,
            _ => CreateTable::Never,
        };
        let schema_update = self.schema_update();
        let options = SinkOptions {
            mode: match self.word("write.mode") {
                "at_least_once" => WriteMode::AtLeastOnce,
                _ => WriteMode::ExactlyOnce,
            },
            format: match self.word("write.format") {
                "proto" => Format::Proto,
                _ => Format::Arrow,
            },
            append_bytes,
            append_linger: self.time("write.append.linger"),
            inflight_bytes,
            inflight_requests: self.count("write.inflight.requests"),
            inflight_time: self.time("write.inflight.time"),
            sub_microseconds: match self.word("write.sub_microseconds") {
                "refuse" => SubMicroseconds::Refuse,
                _ => SubMicroseconds::Truncate,
            },
            missing_values: match self.word("write.missing_values") {
                "default" => MissingValues::Default,
                _ => MissingValues::Null,
            },
            row_errors: self.row_errors(table.as_ref()),
            create,
            layout: self.layout(create, table.as_ref()),
            schema_update,
            primary_key: Vec::new(),
            append_timeout: self.time("append.timeout"),
            commit_timeout: self.time("commit.timeout"),
            quota_timeout: self.time("quota.timeout"),
            unprovable: match self.word("commit.unprovable") {
                "assume_visible" => UnprovableCommit::AssumeVisible,
                "accept_loss" => UnprovableCommit::AcceptLoss,
                _ => UnprovableCommit::Fail,
            },
            credentials: self.credentials(),
            quota_project: self.quota_project(),
            endpoints: self.endpoints(create, schema_update),
            table: table.unwrap_or_else(placeholder),
        };
        if self.problems.is_empty() {
            Ok(options)
        } else {
            Err(self.problems)
        }
    }

    /// Refuses what the table does not know, what comes later, and words it does not list.
    fn check_known(&mut self, name: &str, value: &str) {
        let Some(spec) = OptionSpec::find(name) else {
            let hint = OptionSpec::nearest(name)
                .map_or_else(String::new, |near| format!("; did you mean '{}'?", near.name));
            return self.problem(name, format!("there is no option '{name}'{hint}"));
        };
        if spec.step != Step::Now {
            return self.problem(name, format!("option '{name}' is not yet supported"));
        }
        if let Accepts::OneOf(choices) = spec.accepts {
            match choices.iter().find(|choice| choice.value == value.trim()) {
                Some(choice) if choice.step == Step::Now => {}
                Some(choice) => {
                    let accepts = spec.accepts.describe();
                    let message = format!(
                        "option '{name}': '{}' is not yet supported; use {accepts}",
                        choice.value
                    );
                    self.problem(name, message);
                }
                None => self.wrong(spec, value),
            }
        }
    }

    fn table(&mut self) -> Option<TableName> {
        let project = self.name("project", |text| ProjectId::new(text));
        let dataset = self.name("dataset", |text| DatasetId::new(text));
        let table = self.name("table", |text| TableId::new(text));
        Some(TableName::new(project?, dataset?, table?))
    }

    fn name<T>(&mut self, option: &str, read: impl FnOnce(&str) -> Result<T, NameError>) -> Option<T> {
        let Some(text) = self.given.get(option) else {
            self.problem(option, format!("option '{option}' is required"));
            return None;
        };
        match read(text) {
            Ok(name) => Some(name),
            Err(error) => {
                self.problem(option, format!("option '{option}': {error}"));
                None
            }
        }
    }

    fn quota_project(&mut self) -> Option<ProjectId> {
        self.given
            .contains_key("quota_project")
            .then(|| self.name("quota_project", |text| ProjectId::new(text)))?
    }

    fn credentials(&mut self) -> Credentials {
        let text = self.text("credentials").trim();
        if text.is_empty() {
            self.problem(
                "credentials",
                "option 'credentials' is empty; leave it out for 'adc'".to_owned(),
            );
        }
        if text.starts_with('{') && !text.starts_with("{{") {
            let message = "option 'credentials' holds a key itself; a key does not belong into SQL: give the path of its \
                           file, or '{{ NAME }}' for an environment variable that holds path or key";
            self.problem("credentials", message.to_owned());
        }
        if text == "adc" {
            Credentials::Adc
        } else {
            Credentials::File(text.to_owned())
        }
    }

    fn endpoints(&mut self, create: CreateTable, update: SchemaUpdate) -> Endpoints {
        let ca = self.given.get("endpoint.ca").map(PathBuf::from);
        if self
            .given
            .get("endpoint")
            .is_some_and(|value| value.trim() == "emulator")
        {
            return self.emulator_endpoints(ca);
        }
        let (grpc, http) = (self.endpoint("endpoint.grpc"), self.endpoint("endpoint.http"));
        if ca.is_some() && grpc.is_plaintext() {
            let message =
                "option 'endpoint.ca' has no use: 'endpoint.grpc' is http:// and has no certificate";
            self.problem("endpoint.ca", message.to_owned());
        }
        // A table created or changed at Google's for rows that go elsewhere would be a surprise, and the reverse too.
        let given = |name| self.given.contains_key(name);
        let apart = given("endpoint.grpc") != given("endpoint.http");
        let purpose = match (create, update.add_columns) {
            (CreateTable::IfMissing, _) => Some(("'table.create' is 'if_missing'", "created")),
            (CreateTable::Never, true) => Some(("'schema.update' is 'add_columns'", "changed")),
            (CreateTable::Never, false) => None,
        };
        if let Some((option, done)) = purpose.filter(|_| apart) {
            let message = format!(
                "options 'endpoint.grpc' and 'endpoint.http' must be given together when {option}: the table is {done} at one and \
                 written at the other"
            );
            self.problem("endpoint.http", message);
        }
        Endpoints { grpc, http, ca }
    }

    fn emulator_endpoints(&mut self, ca: Option<PathBuf>) -> Endpoints {
        for name in ["endpoint.grpc", "endpoint.http", "endpoint.ca"] {
            if self.given.contains_key(name) {
                self.problem(
                    name,
                    format!("option '{name}' has no use beside endpoint = 'emulator'"),
                );
            }
        }
        let resolved = self
            .emulator
            .map(|at| (Endpoint::parse(at.grpc), Endpoint::parse(at.http)));
        let (grpc, http) = match resolved {
            Some((Ok(grpc), Ok(http))) => (grpc, http),
            Some((Err(error), _) | (_, Err(error))) => {
                self.problem("endpoint", format!("the emulator's address is wrong: {error}"));
                (
                    default_endpoint("endpoint.grpc"),
                    default_endpoint("endpoint.http"),
                )
            }
            None => {
                let message = "option 'endpoint': 'emulator' works with the command-line tool only, which starts one; here give \
                               'endpoint.grpc' and 'endpoint.http' of a running emulator";
                self.problem("endpoint", message.to_owned());
                (
                    default_endpoint("endpoint.grpc"),
                    default_endpoint("endpoint.http"),
                )
            }
        };
        Endpoints { grpc, http, ca }
    }

    fn endpoint(&mut self, option: &'static str) -> Endpoint {
        let endpoint = match Endpoint::parse(self.text(option)) {
            Ok(endpoint) => endpoint,
            Err(reason) => {
                let accepts = spec(option).accepts.describe();
                self.problem(
                    option,
                    format!("option '{option}': {reason}; accepted is {accepts}"),
                );
                return default_endpoint(option);
            }
        };
        if endpoint.is_plaintext() && !endpoint.is_loopback() && self.word("endpoint.insecure") != "true" {
            let message = format!(
                "option '{option}': {endpoint} is another machine and http:// is readable by everyone in between; use https://, \
                 or set endpoint.insecure = 'true'"
            );
            self.problem(option, message);
        }
        endpoint
    }

    fn size(&mut self, option: &'static str) -> usize {
        let Accepts::Bytes { min, max } = spec(option).accepts else {
            unreachable!("the table lists '{option}' as a size");
        };
        let value = values::bytes(self.text(option)).filter(|size| (min..=max).contains(size));
        let value = value.unwrap_or_else(|| self.wrong_given(option, min));
        usize::try_from(value).expect("sizes in the table are below 2 GiB")
    }

    fn count(&mut self, option: &'static str) -> usize {
        let Accepts::Count { min, max } = spec(option).accepts else {
            unreachable!("the table lists '{option}' as a number");
        };
        let value = self
            .text(option)
            .trim()
            .parse()
            .ok()
            .filter(|count| (min..=max).contains(count));
        let value = value.unwrap_or_else(|| self.wrong_given(option, min));
        usize::try_from(value).expect("numbers in the table are small")
    }

    fn time(&mut self, option: &'static str) -> Duration {
        let Accepts::Time { min, max } = spec(option).accepts else {
            unreachable!("the table lists '{option}' as a duration");
        };
        let value = values::duration(self.text(option)).filter(|time| (min..=max).contains(time));
        value.unwrap_or_else(|| self.wrong_given(option, min))
    }

    /// The word given for an option that takes one of several; `check_known` has reported a wrong one.
    fn word(&self, option: &'static str) -> &'a str {
        self.text(option).trim()
    }

    fn text(&self, option: &'static str) -> &'a str {
        match (self.given.get(option), spec(option).default) {
            (Some(given), _) => given,
            (None, OptionDefault::Value(value)) => value,
            (None, OptionDefault::None | OptionDefault::Required) => "",
        }
    }

    /// Reports a value out of its bounds; `instead` lets the reading go on to the other options.
    fn wrong_given<T>(&mut self, option: &'static str, instead: T) -> T {
        self.wrong(spec(option), self.text(option));
        instead
    }

    fn wrong(&mut self, spec: &OptionSpec, value: &str) {
        let OptionSpec { name, accepts, .. } = spec;
        let value = values::shown(value);
        self.problem(
            name,
            format!(
                "option '{name}': '{value}' is not accepted; accepted is {}",
                accepts.describe()
            ),
        );
    }

    fn problem(&mut self, option: &str, message: String) {
        self.problems.push(OptionProblem {
            option: option.to_owned(),
            message,
        });
    }
}

fn spec(option: &'static str) -> &'static OptionSpec {
    OptionSpec::find(option).expect("the reader asks for options of the table only; a test reads them all")
}

fn default_endpoint(option: &'static str) -> Endpoint {
    let OptionDefault::Value(value) = spec(option).default else {
        unreachable!("the table gives '{option}' a default");
    };
    Endpoint::parse(value).expect("defaults of the table are addresses; a test reads them")
}

/// Stands in for a table whose name is wrong, so that the other options are still looked at; never handed out.
fn placeholder() -> TableName {
    "projects/p/datasets/d/tables/t".parse().expect("a valid name")
}
