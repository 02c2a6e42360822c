//! Messages of the engine's processes.

/// Those of jobs.
pub mod rpc {
    /// A state table.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TableConfig {
        /// Its kind.
        pub table_type: i32,
        /// What there is to say of that kind.
        pub config: Vec<u8>,
        /// Version of what it holds.
        pub state_version: u32,
    }

    /// Kinds of state tables.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
    #[repr(i32)]
    pub enum TableEnum {
        /// None was said.
        MissingTableType = 0,
        /// Keys and values, every subtask's for all of them.
        GlobalKeyValue = 1,
    }

    /// What there is to say of a table of keys and values.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GlobalKeyedTableConfig {
        /// Its name.
        #[prost(string, tag = "1")]
        pub table_name: String,
        /// What it is for.
        #[prost(string, tag = "2")]
        pub description: String,
        /// Whether the engine says commit for it.
        #[prost(bool, tag = "3")]
        pub uses_two_phase_commit: bool,
    }

    /// How far a subtask is with a checkpoint.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TaskCheckpointEventType {
        /// Its commit is done.
        FinishedCommit,
    }
}
