//! What the engine's REST API and console know.

/// Connections.
pub mod connections {
    use std::collections::{HashMap, HashSet};

    use arrow::datatypes::{DataType, Field};
    use serde::{Deserialize, Serialize};

    /// A connector, for the console.
    #[derive(Clone, Debug)]
    pub struct Connector {
        /// Its name in SQL.
        pub id: String,
        /// Its name for people.
        pub name: String,
        /// SVG.
        pub icon: String,
        /// What it does.
        pub description: String,
        /// JSON schema of a table.
        pub table_config: String,
        /// Whether it can be used.
        pub enabled: bool,
        /// Whether it is read.
        pub source: bool,
        /// Whether it is written.
        pub sink: bool,
        /// Whether the columns are asked for.
        pub custom_schemas: bool,
        /// Whether a table can be tried.
        pub testing: bool,
        /// Whether the console leaves it out.
        pub hidden: bool,
        /// JSON schema of a profile.
        pub connection_config: Option<String>,
    }

    /// A profile that was kept.
    #[derive(Clone, Debug)]
    pub struct ConnectionProfile {
        /// What it says.
        pub config: serde_json::Value,
    }

    /// Which way rows go.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ConnectionType {
        /// Into the table.
        Sink,
    }

    /// What is known of a table's rows.
    #[derive(Clone, Debug, Default)]
    pub struct ConnectionSchema {
        /// How they are written as text.
        pub format: Option<Format>,
        /// The columns, none where they are inferred.
        pub fields: Vec<SourceField>,
        /// Those of the primary key, unordered.
        pub primary_keys: HashSet<String>,
    }

    /// How rows are written as text.
    #[derive(Clone, Debug)]
    pub enum Format {
        /// As JSON, perhaps as changes.
        Json {
            /// Whether as changes.
            debezium: bool,
        },
    }

    impl Format {
        /// Whether rows are changes.
        #[must_use]
        pub fn is_updating(&self) -> bool {
            matches!(self, Self::Json { debezium: true })
        }
    }

    /// A column.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    pub struct SourceField {
        /// Its name.
        pub name: String,
        /// Its type.
        pub field_type: FieldType,
        /// Whether it is NOT NULL.
        pub required: bool,
    }

    /// A few of the types.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    pub enum FieldType {
        /// BIGINT.
        Int64,
        /// TEXT.
        String,
        /// JSON.
        Json,
    }

    impl From<SourceField> for Field {
        fn from(column: SourceField) -> Self {
            let (data_type, is_json) = match column.field_type {
                FieldType::Int64 => (DataType::Int64, false),
                FieldType::String => (DataType::Utf8, false),
                FieldType::Json => (DataType::Utf8, true),
            };
            let field = Self::new(column.name, data_type, !column.required);
            if is_json {
                let marker = ("ARROW:extension:name".to_owned(), "arroyo.json".to_owned());
                return field.with_metadata(HashMap::from([marker]));
            }
            field
        }
    }

    /// A line of what trying says.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TestSourceMessage {
        /// Whether it went wrong.
        pub error: bool,
        /// Whether it is the last.
        pub done: bool,
        /// What was found.
        pub message: String,
    }

    impl TestSourceMessage {
        /// A line in between.
        pub fn info(message: impl Into<String>) -> Self {
            Self {
                error: false,
                done: false,
                message: message.into(),
            }
        }

        /// The last line.
        pub fn done(message: impl Into<String>) -> Self {
            Self {
                error: false,
                done: true,
                message: message.into(),
            }
        }

        /// What went wrong.
        pub fn fail(message: impl Into<String>) -> Self {
            Self {
                error: true,
                done: true,
                message: message.into(),
            }
        }
    }
}
