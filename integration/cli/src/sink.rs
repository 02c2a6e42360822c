//! The pipeline's BigQuery sink: its options with their places in the file, and the factory of its instances.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use bigquery_sink::metrics::{Counter, Metrics};
use bigquery_sink::options::{Emulator, OptionProblem, SinkOptions};
use bigquery_sink::{BigQuerySink, Blame, Environment, SinkError, SinkOperator, TableLooks, Task};
use bigquery_sink_pipeline::{Pipeline, PipelineError, PipelineErrors, Place, SinkFactory};

use crate::failure::Failure;

/// Reads the sink's options; every problem with its place. `emulator` is where `endpoint = 'emulator'` points.
pub(crate) fn options(pipeline: &Pipeline, emulator: Option<Emulator<'_>>) -> Result<SinkOptions, Failure> {
    let given = given(pipeline);
    let options = match emulator {
        Some(emulator) => SinkOptions::parse_with_emulator(&given, emulator),
        None => SinkOptions::parse(&given),
    };
    let checked = options.and_then(|mut options| {
        options.primary_key.clone_from(&pipeline.sink.primary_key);
        options.check_columns(&pipeline.sink.columns).map(|()| options)
    });
    checked.map_err(|problems| {
        Failure::usage(format!(
            "the pipeline cannot run:\n{}",
            placed(pipeline, problems)
        ))
    })
}

/// Whether the sink writes to an emulator that the tool starts.
pub(crate) fn wants_emulator(pipeline: &Pipeline) -> bool {
    SinkOptions::wants_emulator(&given(pipeline))
}

fn given(pipeline: &Pipeline) -> Vec<(String, String)> {
    pipeline
        .sink
        .options
        .iter()
        .map(|option| (option.name.clone(), option.value.clone()))
        .collect()
}

fn placed(pipeline: &Pipeline, problems: Vec<OptionProblem>) -> PipelineErrors {
    let mut errors: Vec<PipelineError> = problems
        .into_iter()
        .map(|problem| {
            let option = pipeline.sink_option(&problem.option);
            let place = option.map_or(pipeline.sink.place, |option| Place {
                line: option.line,
                column: option.column,
            });
            PipelineError {
                file: pipeline.file.display().to_string(),
                place,
                message: problem.message,
            }
        })
        .collect();
    errors.sort_by_key(|error| error.place);
    PipelineErrors(errors)
}

/// Makes the sink's instances; they share one connection.
#[derive(Debug)]
pub(crate) struct Sinks {
    pub(crate) options: Arc<SinkOptions>,
    pub(crate) environment: Environment,
}

impl Sinks {
    pub(crate) fn new(options: SinkOptions) -> Result<Self, Failure> {
        let environment = Environment::new(&options, Metrics::of_default_registry())
            .map_err(|error| Failure::usage(error.to_string()).because(&error))?;
        Ok(Self {
            options: Arc::new(options),
            environment,
        })
    }

    /// Looks at the table, and at that of dead letters: is it there (or may it be made), may it be written, do the columns fit?
    pub(crate) async fn check(&self, columns: &SchemaRef) -> Result<TableLooks, Failure> {
        let error = match BigQuerySink::check(&self.options, columns, &self.environment).await {
            Ok(look) => return Ok(look),
            Err(error) => error,
        };
        Err(match error.blame() {
            Blame::User => Failure::usage(error.to_string()),
            Blame::External | Blame::Internal => Failure::running(format!(
                "{error}; is the address right ('endpoint.grpc', 'endpoint.http'), and is the network up?"
            )),
        })
    }
}

impl SinkFactory for Sinks {
    fn create(&self, task: Task, columns: SchemaRef) -> Result<Box<dyn SinkOperator>, SinkError> {
        Ok(Box::new(BigQuerySink::new(
            Arc::clone(&self.options),
            columns,
            task,
            self.environment.clone(),
        )))
    }

    fn streams_created(&self) -> u64 {
        self.environment.metrics.total(Counter::StreamsCreated)
    }
}
