//! The examples as they are in the tree.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bigquery_write_emulator::catalog::DatasetRef;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Emulator};
use tokio::time::sleep;

use crate::support::{endpoints, finish, printed, signal, summary, tool};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The example, with an emulator of the test's own in place of the one in the process.
async fn pointed(name: &str, dataset: &str) -> (Emulator, tempfile::TempDir, PathBuf) {
    let emulator = Emulator::start(Config::default()).await.unwrap();
    emulator
        .handle()
        .create_dataset(&DatasetRef::new("demo", dataset), "US")
        .unwrap();
    let sql = std::fs::read_to_string(examples().join(name)).unwrap();
    assert!(sql.contains("endpoint = 'emulator'"));
    let data = examples().join("data").canonicalize().unwrap();
    let sql = sql
        .replace("endpoint = 'emulator'", &endpoints(&emulator))
        .replace("'data/", &format!("'{}/", data.display()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, sql).unwrap();
    (emulator, folder, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn earthquakes_run_as_the_readme_says() {
    let child = tool()
        .arg("run")
        .arg(examples().join("earthquakes.sql"))
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let summary = summary(&finish(child, Duration::from_secs(60)).await);
    assert_eq!(
        (&summary["rows_read"], &summary["rows_committed"]),
        (&1_707.into(), &(strong_earthquakes().len() as u64).into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn earthquakes_arrive_with_every_value() {
    let (emulator, _folder, file) = pointed("earthquakes.sql", "geology").await;
    let output = tool()
        .arg("run")
        .arg(file)
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    summary(&finish(output, Duration::from_secs(60)).await);
    let sql = "SELECT id, magnitude, magnitude_type, place, UNIX_MICROS(happened_at) AS micros, felt, tsunami, coordinates FROM `demo.geology.earthquakes`";
    let rows = emulator.handle().query("demo", None, sql).await.unwrap().rows;
    let mut rows = printed(&rows);
    let mut expected = strong_earthquakes();
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn earthquakes_at_least_once_are_all_there_and_the_guarantee_is_said() {
    let (emulator, _folder, file) = pointed("earthquakes.sql", "geology").await;
    let sql = std::fs::read_to_string(&file).unwrap();
    let mode = "connector = 'bigquery', 'write.mode' = 'at_least_once'";
    std::fs::write(&file, sql.replace("connector = 'bigquery'", mode)).unwrap();
    let plan =
        r#"{"rules": [{"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer"}}]}"#;
    let plan = FaultPlan::parse(plan).unwrap();
    emulator.handle().set_faults(plan).unwrap();

    let checked = tool().arg("check").arg(&file).output().unwrap();
    let told = String::from_utf8(checked.stdout).unwrap();
    let first = told.lines().next().unwrap_or_default();
    assert!(first.ends_with(", 8 columns, each row at least once"), "{told}");

    let child = tool()
        .arg("run")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = finish(child, Duration::from_secs(60)).await;
    let told = String::from_utf8(output.stdout).unwrap();
    let expected = strong_earthquakes().len();
    let start = format!(
        "1707 rows read, {expected} rows became visible in projects/demo/datasets/geology/tables/earthquakes, each at least once, after "
    );
    assert!(told.starts_with(&start), "{told}");
    assert!(
        told.contains(" checkpoints · 0 write streams · 0 restarts · 0 rows rejected"),
        "{told}"
    );

    let sql = "SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS ids FROM `demo.geology.earthquakes`";
    let rows = printed(&emulator.handle().query("demo", None, sql).await.unwrap().rows);
    let (rows, ids) = rows[0].split_once('|').unwrap();
    let rows: usize = rows.parse().unwrap();
    assert_eq!(ids, expected.to_string());
    assert!(
        rows > expected,
        "{rows}: what the lost answer was about is there twice"
    );

    let mut show = tool();
    show.args(["checkpoint", "show", "--json", "--state-dir"]);
    let shown = show.arg(file.with_extension("state")).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let subtask = &shown["subtasks"][0];
    assert_eq!(subtask["mode"], "at_least_once");
    let stream = "projects/demo/datasets/geology/tables/earthquakes/streams/_default";
    assert_eq!(
        subtask["streams"],
        serde_json::json!([{ "stream": stream, "next_offset": null }])
    );
    assert_eq!(subtask["commit"], serde_json::json!([]));
}

/// The filter and the projection by this test's own plain code.
fn strong_earthquakes() -> Vec<String> {
    let text = std::fs::read_to_string(examples().join("data/earthquakes.ndjson")).unwrap();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let or_null = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "NULL".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    rows.filter(|row| {
        row["properties"]["mag"]
            .as_f64()
            .is_some_and(|magnitude| magnitude >= 1.0)
    })
    .map(|row| {
        let (id, properties) = (row["id"].as_str().unwrap(), &row["properties"]);
        let coordinates = row["geometry"]["coordinates"].as_array().unwrap();
        let coordinates: Vec<String> = coordinates
            .iter()
            .map(|number| format!("{:?}", number.as_f64().unwrap()))
            .collect();
        [
            id.to_owned(),
            format!("{:?}", properties["mag"].as_f64().unwrap()),
            or_null(&properties["magType"]),
            or_null(&properties["place"]),
            (properties["time"].as_i64().unwrap() * 1_000).to_string(),
            or_null(&properties["felt"]),
            (properties["tsunami"] == 1).to_string(),
            format!("[{}]", coordinates.join(", ")),
        ]
        .join("|")
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn january_flights_arrive_complete_with_nulls_as_nulls() {
    let (emulator, _folder, file) = pointed("flights.sql", "aviation").await;
    let child = tool()
        .arg("run")
        .arg(file)
        .args(["--json", "--parallelism", "3", "--checkpoint-interval", "200ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let summary = summary(&finish(child, Duration::from_secs(120)).await);
    assert_eq!(
        (&summary["rows_read"], &summary["rows_committed"]),
        (&27_004.into(), &27_004.into())
    );
    let sums = |column: &str| format!("SUM({column}) AS {column}, COUNT({column}) AS {column}_count");
    let columns = [
        "flight",
        "dep_time",
        "dep_delay",
        "arr_time",
        "arr_delay",
        "air_time",
    ];
    let list: Vec<String> = columns.iter().map(|column| sums(column)).collect();
    let sql = format!(
        "SELECT COUNT(*) AS n, COUNT(tailnum) AS tails, SUM(distance) AS miles, {} FROM `demo.aviation.flights`",
        list.join(", ")
    );
    let rows = emulator.handle().query("demo", None, &sql).await.unwrap().rows;
    assert_eq!(printed(&rows), [flight_sums(&columns)]);
}

/// Sums and counts out of the file by plain splitting.
fn flight_sums(columns: &[&str]) -> String {
    let text = std::fs::read_to_string(examples().join("data/flights-january.csv")).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let values = |name: &str| {
        let index = header.iter().position(|column| *column == name).unwrap();
        rows.iter()
            .map(move |row| row[index])
            .filter(|value| !value.is_empty() && *value != "NA")
            .collect::<Vec<_>>()
    };
    let sum = |name: &str| {
        values(name)
            .iter()
            .map(|value| value.parse::<i64>().unwrap())
            .sum::<i64>()
    };
    let mut printed = vec![
        rows.len().to_string(),
        values("tailnum").len().to_string(),
        format!("{:?}", sum("distance") as f64),
    ];
    for column in columns {
        printed.push(sum(column).to_string());
        printed.push(values(column).len().to_string());
    }
    printed.join("|")
}

#[tokio::test(flavor = "multi_thread")]
async fn impulse_runs_until_it_is_told_to_stop_with_a_checkpoint() {
    let (emulator, _folder, file) = pointed("impulse.sql", "examples").await;
    let child = tool()
        .arg("run")
        .arg(file)
        .args(["--json", "--parallelism", "2", "--checkpoint-interval", "100ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sql = "SELECT COUNT(*) AS n, COUNT(DISTINCT subtask * 1000000000 + counter) AS distinct_rows FROM `demo.examples.numbers`";
    let mut rows = vec![];
    while rows.is_empty() || rows[0] == "0|0" {
        sleep(Duration::from_millis(20)).await;
        rows = emulator
            .handle()
            .query("demo", None, sql)
            .await
            .map_or_else(|_| vec![], |output| printed(&output.rows));
    }
    signal(&child, "TERM");
    let summary = summary(&finish(child, Duration::from_secs(30)).await);
    let committed = &summary["rows_committed"];
    assert_eq!(
        committed, &summary["rows_read"],
        "a stop takes a checkpoint of everything that was read"
    );
    let rows = printed(&emulator.handle().query("demo", None, sql).await.unwrap().rows);
    assert_eq!(rows, [format!("{committed}|{committed}")]);
}

#[test]
fn the_example_for_real_bigquery_is_valid() {
    let output = tool()
        .arg("check")
        .arg(examples().join("bigquery.sql"))
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_nothing_left_to_do_says_why() {
    let (_emulator, _folder, file) = pointed("earthquakes.sql", "geology").await;
    for (end, told) in [
        ("996", "1707 rows read"),
        (
            "0",
            "nothing to do: the input had ended at checkpoint 1, and all of it is visible",
        ),
    ] {
        let output = tool().arg("run").arg(&file).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{stdout}");
        assert!(stdout.starts_with(told), "{stdout}");
        assert!(stdout.contains(&format!("{end} rows became visible")), "{stdout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flights_without_delays_become_dead_letters() {
    let (emulator, _folder, file) = pointed("dead_letters.sql", "aviation").await;
    let child = tool()
        .arg("run")
        .arg(file)
        .args(["--json", "--parallelism", "2", "--checkpoint-interval", "200ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let summary = summary(&finish(child, Duration::from_secs(120)).await);
    assert_eq!(
        (
            &summary["rows_read"],
            &summary["rows_committed"],
            &summary["rows_rejected"]
        ),
        (&27_004.into(), &26_398.into(), &606.into()),
        "each is in one table or the other"
    );
    let text = std::fs::read_to_string(examples().join("data/flights-january.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let (bad, good): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row[5] == "NA" || row[8] == "NA");
    let minutes: i64 = good.iter().map(|row| row[8].parse::<i64>().unwrap()).sum();
    let query = async |sql: &str| {
        let rows = emulator.handle().query("demo", None, sql).await.unwrap().rows;
        printed(&rows)
    };
    let delays = "SELECT COUNT(*) AS n, SUM(delays[SAFE_OFFSET(1)]) AS minutes FROM `demo.aviation.delays`";
    assert_eq!(query(delays).await, [format!("{}|{minutes}", good.len())]);
    let letters = "SELECT `column`, reason, COUNT(*) AS n FROM `demo.aviation.delays_refused` GROUP BY `column`, reason";
    let expected = format!("delays|NULL as an element of a REPEATED column|{}", bad.len());
    assert_eq!(query(letters).await, [expected]);
    // Each whole, once.
    let mut found = query("SELECT `row` FROM `demo.aviation.delays_refused`").await;
    let number = |text: &str| {
        if text == "NA" {
            "null".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut expected: Vec<String> = bad
        .iter()
        .map(|row| {
            let time = row[18].trim_end_matches('Z');
            let (departure, arrival) = (number(row[5]), number(row[8]));
            format!(
                r#"{{"carrier":"{}","flight":{},"time_hour":"{time}","delays":[{departure},{arrival}]}}"#,
                row[9], row[10]
            )
        })
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
