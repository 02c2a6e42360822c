//! Every file of `scenarios/` is an incident that must not happen again: its run must show nothing wrong.

use std::fs;
use std::path::{Path, PathBuf};

use bigquery_sink_simulation::{Scenario, run};

use super::say;

/// The folder's scenarios by file name, in order.
fn read(folder: &Path) -> Result<Vec<(String, Scenario)>, String> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(folder, &error))?;
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{}: there is no scenario", folder.display()));
    }
    let mut scenarios = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let scenario = Scenario::from_json(&text).map_err(|error| unreadable(&path, &error))?;
        if scenario.about.as_deref().unwrap_or_default().trim().is_empty() {
            return Err(unreadable(&path, &"`about` must say what happened"));
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        scenarios.push((name, scenario));
    }
    Ok(scenarios)
}

/// Every incident.
pub(super) fn incidents() -> Vec<(String, Scenario)> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")).unwrap()
}

#[test]
fn no_incident_happens_again() {
    let scenarios = incidents();
    for (name, scenario) in &scenarios {
        let report = run(scenario);
        assert_eq!(
            report.violations,
            [""; 0],
            "{name}: {}\n{}",
            scenario.about.as_deref().unwrap(),
            report.trace
        );
        assert_eq!(
            report.faults.idle, 0,
            "{name}: some of what it names did not happen: {:#?}\n{}",
            report.faults.came_true, report.trace
        );
        let again = Scenario::from_json(&scenario.to_json()).unwrap();
        assert_eq!(again, *scenario, "{name}");
    }
    say(&format!(
        "{0} of {0} incidents did not happen again",
        scenarios.len()
    ));
}

/// A folder with one file of this name and text; without any if the name is empty.
fn folder(name: &str, file: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    if !file.is_empty() {
        fs::write(folder.join(file), text).unwrap();
    }
    folder
}

#[test]
fn a_folder_that_proves_nothing_is_an_error() {
    let wrong = |name: &str, file: &str, text: &str| {
        let folder = folder(name, file, text);
        let error = read(&folder).unwrap_err();
        error.replace(folder.to_str().unwrap(), "F")
    };
    assert_eq!(wrong("empty", "", ""), "F: there is no scenario");
    assert_eq!(
        wrong("no-json", "a.json", "{\"about\": "),
        "F/a.json: EOF while parsing a value at line 1 column 10"
    );
    assert_eq!(
        wrong("unknown", "a.json", "{\"about\": \"x\", \"incarnation\": []}"),
        "F/a.json: unknown field `incarnation`, expected one of `about`, `workload`, `incarnations`, `faults`, `store_faults`, \
         `connection_faults`, `unlearned`, `restarts`, `engine` at line 1 column 28"
    );
    assert_eq!(
        wrong("nobody", "a.json", "{\"about\": \"x\", \"incarnations\": []}"),
        "F/a.json: incarnations: name at least one"
    );
    assert_eq!(
        wrong(
            "untold",
            "a.json",
            "{\"about\": \" \", \"incarnations\": [{\"parallelism\": 1}]}"
        ),
        "F/a.json: `about` must say what happened"
    );
}
