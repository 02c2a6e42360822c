//! The examples' pipelines, judged by plain code over their files.

use std::path::PathBuf;

use bigquery_sink_pipeline::{Control, Pipeline};
use serde_json::Value;

use crate::fake::World;

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

fn number(value: &Value) -> String {
    value
        .as_f64()
        .map_or("NULL".into(), |number| format!("{number:?}"))
}

/// A GeoJSON feature as the pipeline should write it; `None` if the filter takes it out.
fn earthquake(line: &str) -> Option<String> {
    let feature: Value = serde_json::from_str(line).unwrap();
    let properties = &feature["properties"];
    let magnitude = properties["mag"].as_f64().filter(|magnitude| *magnitude >= 1.0)?;
    let millis = properties["time"].as_i64().unwrap();
    let time = chrono::DateTime::from_timestamp_millis(millis)
        .unwrap()
        .naive_utc();
    let coordinates: Vec<_> = feature["geometry"]["coordinates"]
        .as_array()
        .unwrap()
        .iter()
        .map(number)
        .collect();
    let fields = [
        feature["id"].as_str().unwrap().to_owned(),
        format!("{magnitude:?}"),
        properties["magType"].as_str().unwrap().to_owned(),
        properties["place"].as_str().unwrap().to_owned(),
        format!("{time:?}"),
        properties["felt"]
            .as_i64()
            .map_or("NULL".into(), |felt| felt.to_string()),
        (properties["tsunami"] == 1).to_string(),
        format!("[{}]", coordinates.join(", ")),
    ];
    Some(fields.join("|"))
}

#[tokio::test(start_paused = true)]
async fn the_earthquakes_arrive_as_their_file_says_over_kills_and_another_parallelism() {
    let text = std::fs::read_to_string(example("data/earthquakes.ndjson")).unwrap();
    let mut expected: Vec<_> = text.lines().filter_map(earthquake).collect();
    expected.sort();
    assert_eq!((text.lines().count(), expected.len()), (1707, 996));
    let pipeline = Pipeline::load(&example("earthquakes.sql")).unwrap();

    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), 1);
    let summary = world.run(&pipeline, Control::new()).await.unwrap();
    assert_eq!((summary.rows_read, summary.rows_committed), (1707, 996));
    assert_eq!(world.visible(), expected);

    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), 3);
    world.change = std::sync::Arc::new(|config| config.source_rate = Some(2000.0));
    for (parallelism, at) in [(3, 20), (3, 25), (2, 17), (3, 30)] {
        world.parallelism = parallelism;
        assert!(!world.run_and_kill(&pipeline, at).await);
    }
    world.run(&pipeline, Control::new()).await.unwrap();
    assert_eq!(world.visible(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_flights_of_january_arrive_with_their_nulls_and_sums() {
    let text = std::fs::read_to_string(example("data/flights-january.csv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|found| *found == name).unwrap();
    let flight = |line: &str| {
        let fields: Vec<_> = line
            .split(',')
            .map(|field| if field == "NA" { "NULL" } else { field })
            .collect();
        let get = |name: &str| fields[column(name)].to_owned();
        let time = get("time_hour").replace(":00Z", ":00");
        let plain = [
            "sched_dep_time",
            "dep_time",
            "dep_delay",
            "sched_arr_time",
            "arr_time",
            "arr_delay",
            "air_time",
        ]
        .map(get);
        let mut row = ["carrier", "flight", "tailnum", "origin", "dest"]
            .map(get)
            .to_vec();
        row.push(time);
        row.extend(plain);
        row.push(format!("{}.0", get("distance")));
        row.push((get("dep_time") == "NULL").to_string());
        row.join("|")
    };
    let mut expected: Vec<_> = lines.map(flight).collect();
    expected.sort();
    assert_eq!(expected.len(), 27_004);
    let pipeline = Pipeline::load(&example("flights.sql")).unwrap();
    let state = tempfile::tempdir().unwrap();
    let world = World::new(state.path(), 2);
    let summary = world.run(&pipeline, Control::new()).await.unwrap();
    assert_eq!((summary.rows_read, summary.rows_committed), (27_004, 27_004));
    let visible = world.visible();
    let wrong = visible.iter().zip(&expected).find(|(is, should)| is != should);
    assert_eq!(wrong, None);
    assert_eq!(visible.len(), expected.len());
}

#[tokio::test(start_paused = true)]
async fn the_flights_in_parquet_arrive_as_their_csv_says_over_kills_and_another_parallelism() {
    let text = std::fs::read_to_string(example("data/flights-january.csv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let columns = [
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "time_hour",
        "sched_dep_time",
        "dep_time",
        "dep_delay",
        "distance",
    ]
    .map(|name| names.iter().position(|found| *found == name).unwrap());
    let flight = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let field = |column: usize| {
            if fields[column] == "NA" {
                "NULL"
            } else {
                fields[column]
            }
        };
        let mut row = columns
            .map(|column| field(column).replace(":00Z", ":00"))
            .to_vec();
        row[9] += ".0";
        row.push((row[7] == "NULL").to_string());
        row.join("|")
    };
    let mut expected: Vec<_> = lines.map(flight).collect();
    expected.sort();
    let pipeline = Pipeline::load(&example("parquet.sql")).unwrap();
    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), 3);
    world.change = std::sync::Arc::new(|config| config.source_rate = Some(20_000.0));
    for (parallelism, at) in [(3, 20), (3, 25), (2, 17), (3, 30)] {
        world.parallelism = parallelism;
        assert!(!world.run_and_kill(&pipeline, at).await);
    }
    world.run(&pipeline, Control::new()).await.unwrap();
    let visible = world.visible();
    let wrong = visible.iter().zip(&expected).find(|(is, should)| is != should);
    assert_eq!(wrong, None);
    assert_eq!((visible.len(), expected.len()), (27_004, 27_004));
}

#[test]
fn every_example_is_a_valid_pipeline() {
    for name in [
        "earthquakes.sql",
        "impulse.sql",
        "bigquery.sql",
        "flights.sql",
        "parquet.sql",
    ] {
        let pipeline = Pipeline::load(&example(name)).unwrap();
        assert!(pipeline.sink_option("project").is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn subqueries_and_unnested_lists_are_run_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let lines =
        r#"{"n": 1, "l": ["a", "b"]} {"n": 2} {"n": 3, "l": []} {"n": 4, "l": ["c"]}"#.replace("} {", "}\n{");
    std::fs::write(folder.path().join("in.json"), lines).unwrap();
    let sql = "
        CREATE TABLE lines (n BIGINT, l TEXT[]) WITH (connector = 'single_file', path = 'in.json', format = 'json');
        CREATE TABLE out WITH (connector = 'bigquery');
        INSERT INTO out WITH big AS (SELECT n * 10 AS tens, l FROM lines WHERE n <> 2)
        SELECT tens, upper(item) AS item FROM (SELECT tens, unnest(l) AS item FROM big) t";
    let pipeline = Pipeline::parse(sql, &folder.path().join("p.sql")).unwrap();
    let world = World::new(&folder.path().join("state"), 1);
    world.run(&pipeline, Control::new()).await.unwrap();
    assert_eq!(world.visible(), ["10|A", "10|B", "40|C"]);
}
