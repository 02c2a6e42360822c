//! Options as the engine stores them and its web console asks for them: one flat JSON object each for a connection profile and a table,
//! of which the option table makes the JSON schemas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::options::{Accepts, OPTIONS, OptionDefault, OptionSpec, SinkOptions, Step};

/// Options that belong to a profile: who writes, and where BigQuery is. The others are the table's.
const PROFILE: [&str; 7] = [
    "project",
    "credentials",
    "quota_project",
    "endpoint.grpc",
    "endpoint.http",
    "endpoint.ca",
    "endpoint.insecure",
];

/// Options that a form does not ask for: what the console knows already, and what the engine cannot do.
const NOT_ASKED: [&str; 3] = ["connector", "type", "endpoint"];

/// Options in `WITH (...)` that the engine's planner reads itself, after the connector has read its own.
const OF_THE_PLANNER: [&str; 5] = [
    "event_time_field",
    "watermark_field",
    "idle_micros",
    "lookup.cache.max_bytes",
    "lookup.cache.ttl",
];

/// Options of a profile or a table. A key is the option's name with `_` for `.`, since the console takes a dot for a level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Form(BTreeMap<String, Value>);

impl Form {
    /// Parts what stands in `WITH (...)` into profile and table.
    ///
    /// # Errors
    /// Options that there are not, each with the nearest that there is.
    pub fn split(options: Vec<(String, String)>) -> Result<(Self, Self), String> {
        let is_option = |name: &str| OptionSpec::find(name).is_some();
        if !options.iter().all(|(name, _)| is_option(name)) {
            let problems = SinkOptions::parse(&options).err().unwrap_or_default();
            let unknown = problems.iter().filter(|problem| !is_option(&problem.option));
            return Err(unknown.map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        let (profile, table) = options
            .into_iter()
            .map(|(name, value)| (name, Value::String(value)))
            .partition(|(name, _): &(String, Value)| PROFILE.contains(&name.as_str()));
        Ok((Self::of(profile), Self::of(table)))
    }

    fn of(options: Vec<(String, Value)>) -> Self {
        let options = options.into_iter();
        Self(options.map(|(name, value)| (key(&name), value)).collect())
    }

    /// The options as they would stand in `WITH (...)`.
    ///
    /// # Errors
    /// A value that is no text, number or truth value.
    pub fn options(&self) -> Result<Vec<(String, String)>, String> {
        let mut options = Vec::new();
        for (given, value) in &self.0 {
            let spec = OPTIONS.iter().find(|spec| key(spec.name) == *given);
            let name = spec.map_or(given.as_str(), |spec| spec.name);
            let value = match value {
                Value::Null => continue,
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(is_true) => is_true.to_string(),
                Value::Array(_) | Value::Object(_) => return Err(format!("option '{name}' must be text")),
            };
            options.push((name.to_owned(), value));
        }
        Ok(options)
    }

    /// With the options of another form, too.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The text of an option.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(&key(name)).and_then(Value::as_str)
    }
}

/// Whether the connector reads an option in `WITH (...)`. It reads those that nobody knows, too, and says which one may be meant.
#[must_use]
pub fn is_for_the_connector(option: &str) -> bool {
    !OF_THE_PLANNER.contains(&option)
}

/// JSON schema of a profile.
#[must_use]
pub fn profile_form() -> String {
    form("BigQueryProfile", |spec| PROFILE.contains(&spec.name), &[])
}

/// JSON schema of a table. The project may be the profile's.
#[must_use]
pub fn table_form() -> String {
    let is_asked = |spec: &OptionSpec| !PROFILE.contains(&spec.name) || spec.name == "project";
    form("BigQueryTable", is_asked, &["dataset", "table"])
}

fn form(title: &str, is_asked: impl Fn(&OptionSpec) -> bool, required: &[&str]) -> String {
    let asked = OPTIONS
        .iter()
        .filter(|spec| spec.step == Step::Now && !NOT_ASKED.contains(&spec.name) && is_asked(spec));
    let asked: Vec<&OptionSpec> = asked.collect();
    let secrets: Vec<&str> = asked
        .iter()
        .map(|spec| spec.name)
        .filter(|name| *name == "credentials")
        .collect();
    // By hand, since a map may sort its keys, and the console asks in the order in which it finds them.
    let properties = asked
        .iter()
        .map(|spec| format!("{}:{}", json!(key(spec.name)), property(spec)));
    format!(
        r#"{{"type":"object","title":{},"required":{},"sensitive":{},"properties":{{{}}}}}"#,
        json!(title),
        json!(required),
        json!(secrets),
        properties.collect::<Vec<_>>().join(",")
    )
}

fn property(spec: &OptionSpec) -> Value {
    let mut description = spec.meaning.to_owned();
    let mut property = match spec.accepts {
        Accepts::OneOf(choices) => {
            let usable = choices.iter().filter(|choice| choice.step == Step::Now);
            json!({ "type": "string", "enum": usable.map(|choice| choice.value).collect::<Vec<_>>() })
        }
        Accepts::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        accepts => {
            description.push_str(&format!(" Give {}.", accepts.describe()));
            json!({ "type": "string" })
        }
    };
    if let OptionDefault::Value(value) = spec.default {
        description.push_str(&format!(" Default: {value}"));
        if property["type"] == "string" && property["enum"].is_null() {
            property["examples"] = json!([value]);
        }
    }
    match spec.name {
        "dataset" | "table" => property["format"] = json!("autocomplete"),
        "credentials" => property["format"] = json!("var-str"),
        _ => {}
    }
    property["title"] = json!(spec.name);
    property["description"] = json!(description);
    property
}

fn key(option: &str) -> String {
    option.replace('.', "_")
}
