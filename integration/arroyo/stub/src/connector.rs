//! Connectors.

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use crate::api_types::connections::{
    self, ConnectionProfile, ConnectionSchema, ConnectionType, TestSourceMessage,
};
use crate::operator::ConstructedOperator;
use crate::options::{ConnectorOptions, OperatorConfig};

/// A table as the planner knows it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where it is kept.
    pub id: Option<i64>,
    /// Its connector.
    pub connector: &'static str,
    /// Its name in SQL.
    pub name: String,
    /// Which way rows go.
    pub connection_type: ConnectionType,
    /// Its columns.
    pub schema: ConnectionSchema,
    /// What the operator is made of, as JSON.
    pub config: String,
    /// How it is shown.
    pub description: String,
}

impl Connection {
    /// That table.
    ///
    /// # Panics
    /// The configuration is no JSON.
    #[must_use]
    pub fn new(
        id: Option<i64>,
        connector: &'static str,
        name: String,
        connection_type: ConnectionType,
        schema: ConnectionSchema,
        config: &impl Serialize,
        description: String,
    ) -> Self {
        Self {
            id,
            connector,
            name,
            connection_type,
            schema,
            config: serde_json::to_string(config).expect("a configuration is JSON"),
            description,
        }
    }
}

/// What a connector has to say and to do.
#[allow(clippy::wrong_self_convention, reason = "the engine's names")]
pub trait Connector: Send {
    /// What is kept of a profile.
    type ProfileT: DeserializeOwned + Serialize;
    /// What is kept of a table.
    type TableT: DeserializeOwned + Serialize;

    /// Its name in SQL.
    fn name(&self) -> &'static str;

    /// What the console has to know.
    fn metadata(&self) -> connections::Connector;

    /// Which way rows go.
    fn table_type(&self, profile: Self::ProfileT, table: Self::TableT) -> ConnectionType;

    /// Values for the table's form.
    fn get_autocomplete(
        &self,
        profile: Self::ProfileT,
    ) -> oneshot::Receiver<anyhow::Result<HashMap<String, Vec<String>>>>;

    /// Tries a profile.
    fn test_profile(&self, profile: Self::ProfileT) -> Option<oneshot::Receiver<TestSourceMessage>>;

    /// Tries a table.
    fn test(
        &self,
        name: &str,
        profile: Self::ProfileT,
        table: Self::TableT,
        schema: Option<&ConnectionSchema>,
        sender: mpsc::Sender<TestSourceMessage>,
    );

    /// A table from SQL.
    ///
    /// # Errors
    /// What is wrong with it.
    fn from_options(
        &self,
        name: &str,
        options: &mut ConnectorOptions,
        schema: Option<&ConnectionSchema>,
        profile: Option<&ConnectionProfile>,
    ) -> anyhow::Result<Connection>;

    /// A table from the console.
    ///
    /// # Errors
    /// What is wrong with it.
    fn from_config(
        &self,
        id: Option<i64>,
        name: &str,
        profile: Self::ProfileT,
        table: Self::TableT,
        schema: Option<&ConnectionSchema>,
    ) -> anyhow::Result<Connection>;

    /// The operator.
    ///
    /// # Errors
    /// What is wrong with its table.
    fn make_operator(
        &self,
        profile: Self::ProfileT,
        table: Self::TableT,
        config: OperatorConfig,
    ) -> anyhow::Result<ConstructedOperator>;
}
