//! What goes to and fro between engine and operator.

use std::time::SystemTime;

use crate::grpc::rpc::TaskCheckpointEventType;

/// Which subtask an operator is.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Number of the node in the pipeline's graph.
    pub operator_idx: u32,
    /// Name of the operator.
    pub operator_name: String,
    /// Its id.
    pub operator_id: String,
    /// The subtask.
    pub task_index: u32,
    /// Number of subtasks.
    pub parallelism: u32,
    /// How checkpoint files are named, which tells who decides about checkpoints.
    pub checkpoint_file_path_layout: CheckpointFilePathLayout,
}

/// How checkpoint files are named.
#[derive(Clone, Debug, Default)]
pub enum CheckpointFilePathLayout {
    /// By the controller.
    #[default]
    Legacy,
    /// By a worker.
    Protocol {
        /// Number of the attempt.
        generation: u64,
    },
}

/// The call for a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointBarrier {
    /// Number of the checkpoint.
    pub epoch: u32,
    /// Oldest one that is kept.
    pub min_epoch: u32,
    /// Not to be trusted (T22).
    pub timestamp: SystemTime,
    /// Whether the job stops with it.
    pub then_stop: bool,
}

/// What comes in a queue beside rows.
#[derive(Clone, Debug)]
pub enum SignalMessage {
    /// A checkpoint.
    Barrier(CheckpointBarrier),
    /// The job stops.
    Stop,
    /// All input ended.
    EndOfData,
}

/// What an operator tells the engine.
#[derive(Clone, Debug)]
pub enum ControlResp {
    /// How far a checkpoint is.
    CheckpointEvent(CheckpointEvent),
}

/// How far a checkpoint is.
#[derive(Clone, Debug)]
pub struct CheckpointEvent {
    /// Number of the checkpoint.
    pub checkpoint_epoch: u64,
    /// Number of the node.
    pub operator_idx: u32,
    /// Its id.
    pub operator_id: String,
    /// The subtask.
    pub subtask_idx: u32,
    /// When.
    pub time: SystemTime,
    /// What.
    pub event_type: TaskCheckpointEventType,
}
