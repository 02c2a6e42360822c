//! `emulator`: BigQuery on this machine.

use std::net::SocketAddr;
use std::path::Path;

use bigquery_write_emulator::catalog::{CatalogError, DatasetRef};
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Emulator, Handle, StartError, TlsFiles};

use crate::args::{DatasetArgument, EmulatorArguments};
use crate::failure::Failure;
use crate::output::print;
use crate::run::stop_signal;

pub(crate) async fn emulator(arguments: EmulatorArguments) -> Result<(), Failure> {
    let emulator = Emulator::start(config(&arguments)?)
        .await
        .map_err(|error| match error {
            StartError::DiscardKept => Failure::usage(format!("--discard with --data-dir: {error}")),
            error => Failure::running(error.to_string()),
        })?;
    let scheme = if arguments.tls.is_some() { "https" } else { "http" };
    for dataset in &arguments.dataset {
        create(&emulator.handle(), &arguments.project, dataset)?;
    }
    let (grpc, http) = (emulator.grpc_addr(), emulator.http_addr());
    print(&format!(
        "Storage Write API  {scheme}://{grpc}\nREST API           {scheme}://{http}\n{}\n",
        usage(scheme, grpc, http, arguments.data_dir.as_deref())
    ))?;
    stop_signal().await;
    emulator.shutdown().await;
    Ok(())
}

fn config(arguments: &EmulatorArguments) -> Result<Config, Failure> {
    let mut config = Config {
        grpc: arguments.grpc,
        http: arguments.http,
        data_dir: arguments.data_dir.clone(),
        discard: arguments.discard,
        ..Config::default()
    };
    if let Some([cert, key]) = arguments.tls.as_deref() {
        config.tls = Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
        });
    }
    if let Some(file) = &arguments.faults {
        let plan = FaultPlan::parse(&read(file, "the fault plan")?);
        config.faults = plan.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    }
    if let Some(file) = &arguments.switches {
        let switches = serde_json::from_str(&read(file, "the switches")?);
        config.switches = switches.map_err(|error| {
            let shown = file.display();
            Failure::usage(format!("{shown}: cannot read the switches: {error}"))
        })?;
    }
    if let Some(latency) = arguments.latency {
        // More milliseconds than u64 holds would be no less than for ever.
        config.latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
    }
    Ok(config)
}

fn read(file: &Path, what: &str) -> Result<String, Failure> {
    let shown = file.display();
    std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{shown}: {what} cannot be read: {error}")))
}

/// Makes a dataset, unless the data directory, or an argument before, had it.
fn create(handle: &Handle, project: &str, dataset: &DatasetArgument) -> Result<(), Failure> {
    let name = DatasetRef::new(project, &dataset.name);
    let location = dataset.location.as_deref();
    match handle.create_dataset(&name, location.unwrap_or_default()) {
        Ok(()) => Ok(()),
        Err(CatalogError::AlreadyExists(_)) => {
            let there = handle.shared().with(|machine| {
                let dataset = machine.catalog().dataset(&name);
                dataset.map_or_else(|_| String::new(), |dataset| dataset.location.clone())
            });
            match location {
                Some(asked) if !asked.eq_ignore_ascii_case(&there) => Err(Failure::usage(format!(
                    "dataset {name} is there already, in {there}: a dataset cannot move to {asked}"
                ))),
                _ => Ok(()),
            }
        }
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn usage(scheme: &str, grpc: SocketAddr, http: SocketAddr, data_dir: Option<&Path>) -> String {
    let after = match data_dir {
        Some(directory) => format!("{} keeps everything.", directory.display()),
        None => "tables are in memory and go then.".to_owned(),
    };
    format!(
        "A pipeline writes here with 'endpoint.grpc' = '{scheme}://{grpc}', 'endpoint.http' = '{scheme}://{http}'. Ctrl-C stops; {after}"
    )
}
