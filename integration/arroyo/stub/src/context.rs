//! What an operator is given with each call.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use tokio::sync::mpsc::Sender;

use crate::errors::StateError;
use crate::types::{ControlResp, TaskInfo};

/// Where an operator's rows go; a sink has none.
pub trait Collector: Send {}

/// What belongs to one subtask.
#[derive(Debug)]
pub struct OperatorContext {
    /// Which it is.
    pub task_info: Arc<TaskInfo>,
    /// To the engine.
    pub control_tx: Sender<ControlResp>,
    /// What comes in, for each input.
    pub in_schemas: Vec<Arc<ArroyoSchema>>,
    /// Its state.
    pub table_manager: TableManager,
}

/// The columns of an edge.
#[derive(Debug)]
pub struct ArroyoSchema {
    /// With the engine's own.
    pub schema: SchemaRef,
}

/// The state tables of one subtask.
#[derive(Default)]
pub struct TableManager {
    tables: HashMap<String, Box<dyn Any + Send + Sync>>,
    committing: Vec<(String, Vec<u8>)>,
}

impl TableManager {
    /// With a table that holds what was restored.
    pub fn restore(&mut self, table: &str, data: HashMap<u32, Vec<u8>>) {
        let view = GlobalKeyedView {
            data,
            inserted: Vec::new(),
        };
        self.tables.insert(table.to_owned(), Box::new(view));
    }

    /// A table of keys and values.
    ///
    /// # Errors
    /// There is none of that name, keys and values.
    #[allow(clippy::unused_async, reason = "the engine's is async")]
    pub async fn get_global_keyed_state<K: 'static, V: 'static>(
        &mut self,
        table: &str,
    ) -> Result<&mut GlobalKeyedView<K, V>, StateError> {
        let table = self.tables.get_mut(table).ok_or(StateError)?;
        table.downcast_mut().ok_or(StateError)
    }

    /// What the checkpoint's commit is to bring back.
    #[allow(clippy::unused_async, reason = "the engine's is async")]
    pub async fn insert_committing_data(&mut self, table: &str, data: Vec<u8>) {
        self.committing.push((table.to_owned(), data));
    }

    /// What was inserted to be committed since the last call.
    pub fn take_committing(&mut self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.committing)
    }
}

impl fmt::Debug for TableManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableManager").finish_non_exhaustive()
    }
}

/// What a subtask sees of a table.
#[derive(Debug)]
pub struct GlobalKeyedView<K, V> {
    data: HashMap<K, V>,
    inserted: Vec<(K, V)>,
}

impl<K, V> GlobalKeyedView<K, V> {
    /// Puts a value into the next checkpoint.
    #[allow(clippy::unused_async, reason = "the engine's is async")]
    pub async fn insert(&mut self, key: K, value: V) {
        self.inserted.push((key, value));
    }

    /// What was restored.
    pub fn take(&mut self) -> HashMap<K, V> {
        std::mem::take(&mut self.data)
    }

    /// What was inserted since the last call: a checkpoint holds that and nothing else.
    pub fn take_inserted(&mut self) -> Vec<(K, V)> {
        std::mem::take(&mut self.inserted)
    }
}
