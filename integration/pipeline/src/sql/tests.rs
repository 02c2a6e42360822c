//! What the parser takes, and the exact text of what it refuses.

use std::path::Path;

use arrow_schema::{DataType, TimeUnit};

use super::*;
use crate::sources::{BadData, CsvOptions, Format, ImpulseConfig, SingleFileConfig};

const IMPULSE: &str = "CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '10');\n";
const SINK: &str = "CREATE TABLE out (a BIGINT, b TEXT) WITH (connector = 'bigquery', dataset = 'd');\n";

fn parse(sql: &str) -> Result<Pipeline, PipelineErrors> {
    Pipeline::parse(sql, Path::new("p.sql"))
}

fn refusals(sql: &str) -> Vec<String> {
    let errors = parse(sql).expect_err(sql);
    errors.to_string().lines().map(str::to_owned).collect()
}

/// A pipeline whose third line is the INSERT.
fn with_insert(insert: &str) -> String {
    format!("{IMPULSE}{SINK}{insert}")
}

#[test]
fn a_pipeline_is_read_with_its_types_options_and_casts() {
    let sql = "
        -- every type Arroyo has, and some of its own
        CREATE TABLE Src (
            id BIGINT NOT NULL, /* block */ small SMALLINT, u INT UNSIGNED, f REAL, d DOUBLE, n DECIMAL(20, 4),
            t TEXT, j JSON, ts TIMESTAMP, ts3 TIMESTAMP(3), day DATE,
            s STRUCT<a TEXT, camelCase STRUCT<b INT[]>>, l TEXT[]
        ) WITH (connector = 'single_file', 'type' = 'source', path = 'x.json', format = 'json', bad_data = 'drop');
        CREATE TABLE snk (
            id BIGINT NOT NULL, wide BIGINT, f DOUBLE, n DECIMAL(38, 6), j JSON, ts TIMESTAMP(6) PRIMARY KEY, l TEXT[], one SMALLINT PRIMARY KEY NOT ENFORCED
        ) WITH (
            connector = 'bigquery', 'write.mode' = 'exactly_once', 'write.append.linger' = interval '5 seconds',
            'append.timeout' = INTERVAL '2' MINUTE, 'write.streams' = 2, \"endpoint.insecure\" = true, offset_ = -1
        );
        INSERT INTO snk SELECT id, u, f, n, t, ts3, l, 1 FROM src WHERE s.a = 'x' AND s['camelCase']['b'][1] > 0;
    ";
    let pipeline = parse(sql).unwrap();
    assert_eq!(pipeline.source.name, "src");
    let path = "x.json".to_owned();
    let config = SingleFileConfig {
        path,
        format: Format::Json,
        bad_data: BadData::Drop,
    };
    assert_eq!(pipeline.source.config, SourceConfig::SingleFile(config));
    let types: Vec<_> = pipeline
        .source
        .columns
        .fields()
        .iter()
        .map(|field| sql_name(field.data_type()))
        .collect();
    let expected = [
        "BIGINT",
        "SMALLINT",
        "INT UNSIGNED",
        "REAL",
        "DOUBLE",
        "DECIMAL(20, 4)",
        "TEXT",
        "TEXT",
        "TIMESTAMP",
        "TIMESTAMP(3)",
        "DATE",
        "STRUCT<a TEXT, camelCase STRUCT<b INT[]>>",
        "TEXT[]",
    ];
    assert_eq!(types, expected);
    assert_eq!(pipeline.sink.primary_key, ["ts", "one"]);
    let columns = &pipeline.sink.columns;
    assert!(!columns.field(0).is_nullable() && columns.field(1).is_nullable());
    assert_eq!(
        *columns.field(5).data_type(),
        DataType::Timestamp(TimeUnit::Microsecond, None)
    );
    let json: Vec<_> = columns
        .fields()
        .iter()
        .filter(|field| is_json(field))
        .map(|field| field.name())
        .collect();
    assert_eq!(json, ["j"]);
    let options: Vec<_> = pipeline
        .sink
        .options
        .iter()
        .map(|o| (o.name.as_str(), o.value.as_str(), o.line, o.column))
        .collect();
    let expected = [
        ("write.mode", "exactly_once", 11, 37),
        ("write.append.linger", "5 seconds", 11, 68),
        ("append.timeout", "2 minutes", 12, 13),
        ("write.streams", "2", 12, 53),
        ("endpoint.insecure", "true", 12, 74),
        ("offset_", "-1", 12, 102),
    ];
    assert_eq!(options, expected);
}

#[test]
fn the_sinks_columns_are_taken_from_the_query_if_it_declares_none() {
    let sql = "
        CREATE TABLE s (j JSON, n BIGINT NOT NULL) WITH (connector = 'single_file', path = 'x', format = 'json');
        CREATE TABLE out WITH (connector = 'bigquery');
        INSERT INTO out SELECT j AS renamed, n + 1 AS next, upper('x') AS u FROM (SELECT j, n FROM s WHERE n > 1) t";
    let columns = parse(sql).unwrap().sink.columns;
    let fields: Vec<_> = columns
        .fields()
        .iter()
        .map(|f| {
            (
                f.name().as_str(),
                sql_name(f.data_type()),
                f.is_nullable(),
                is_json(f),
            )
        })
        .collect();
    let expected = [
        ("renamed", "TEXT".to_owned(), true, true),
        ("next", "BIGINT".to_owned(), false, false),
        ("u", "TEXT".to_owned(), true, false),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn csv_and_impulse_options_are_read() {
    let sql = "
        CREATE TABLE s (a BIGINT) WITH (connector = 'single_file', path = 'x', format = 'csv', 'csv.header' = 'false',
            'csv.delimiter' = ';', 'csv.null' = 'NA', wait_for_control = 'false', compression = 'none');
        CREATE TABLE out (a BIGINT, b TEXT) WITH (connector = 'bigquery');
        INSERT INTO out (b, a) SELECT CAST(a AS TEXT) AS b, a FROM s";
    let csv = CsvOptions {
        header: false,
        delimiter: b';',
        null: "NA".into(),
    };
    let config = SingleFileConfig {
        path: "x".into(),
        format: Format::Csv(csv),
        bad_data: BadData::Fail,
    };
    assert_eq!(
        parse(sql).unwrap().source.config,
        SourceConfig::SingleFile(config)
    );
    let sql = "
        CREATE TABLE i (counter BIGINT, subtask_index BIGINT)
            WITH (connector = 'impulse', event_rate = 2.5, message_count = 7, event_time_interval = '1000');
        CREATE TABLE out (a BIGINT, b TEXT) WITH (connector = 'bigquery');
        INSERT INTO out (a) SELECT counter FROM i";
    let config = ImpulseConfig {
        event_rate: 2.5,
        message_count: Some(7),
    };
    assert_eq!(parse(sql).unwrap().source.config, SourceConfig::Impulse(config));
}

#[test]
fn each_mistake_of_a_table_is_refused_at_its_place() {
    let insert = "INSERT INTO out SELECT counter, 'x' FROM impulse";
    let cases = [
        (
            "CREATE TABLE t (a BIGINT)",
            "p.sql:3:14: table t has no connector; add WITH (connector = '...')",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (connector = 'kafka')",
            "p.sql:3:33: connector 'kafka' is not known here; known are filesystem, impulse and single_file to read, bigquery to write",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (connector = 'big_query')",
            "p.sql:3:33: connector 'big_query' is not known here; did you mean 'bigquery'?; known are filesystem, impulse and single_file to read, \
             bigquery to write",
        ),
        (
            "CREATE TABLE t WITH (connector = 'impulse', event_rat = '5', event_rate = '1')",
            "p.sql:3:45: connector impulse has no option 'event_rat'; did you mean 'event_rate'?",
        ),
        (
            "CREATE TABLE t WITH (connector = 'impulse')",
            "p.sql:3:14: table t has no option 'event_rate'; add it to WITH (...)",
        ),
        (
            "CREATE TABLE t WITH (connector = 'impulse', event_rate = '0')",
            "p.sql:3:45: option 'event_rate' is '0'; it must be a number of rows a second, 0.001 or more",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (connector = 'impulse', event_rate = '1')",
            "p.sql:3:14: table t has the columns counter BIGINT, subtask_index BIGINT; declare these or none",
        ),
        (
            "CREATE TABLE t WITH (connector = 'single_file', path = 'x', format = 'json')",
            "p.sql:3:14: table t declares no columns; a file needs them",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'single_file', path = 'x', format = 'avro')",
            "p.sql:3:69: option 'format' is 'avro'; it must be 'json' or 'csv'",
        ),
        (
            "CREATE TABLE t (a BYTEA) WITH (connector = 'single_file', path = 'x', format = 'json')",
            "p.sql:3:14: table t cannot be read as JSON: Binary is not supported by JSON",
        ),
        (
            "CREATE TABLE t (a INT[]) WITH (connector = 'single_file', path = 'x', format = 'csv')",
            "p.sql:3:14: table t cannot be read as CSV: column a is INT[], which CSV cannot hold",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'single_file', type = 'sink', path = 'x', format = 'csv')",
            "p.sql:3:57: connector single_file is a source here, not a 'sink'",
        ),
        (
            "CREATE TABLE t (a TXT) WITH (connector = 'bigquery')",
            "p.sql:3:17: column a: type TXT is not known; take one of BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, BYTEA, \
             JSON, TIMESTAMP(n), DATE, TIME, STRUCT<...>, T[]",
        ),
        (
            "CREATE TABLE t (a TIMESTAMP(4)) WITH (connector = 'bigquery')",
            "p.sql:3:17: column a: TIMESTAMP(4) is not known; the precision is 0, 3, 6 or 9",
        ),
        (
            "CREATE TABLE t (a DECIMAL(40, 2)) WITH (connector = 'bigquery')",
            "p.sql:3:17: column a: DECIMAL(40, 2) is out of range: 1 to 38 digits, of which the scale is a part",
        ),
        (
            "CREATE TABLE t (a INT, a INT) WITH (connector = 'bigquery')",
            "p.sql:3:24: column a is declared twice",
        ),
        (
            "CREATE TABLE t (a INT UNIQUE) WITH (connector = 'bigquery')",
            "p.sql:3:17: column a: UNIQUE is not yet supported; only NOT NULL and PRIMARY KEY are",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY ENFORCED) WITH (connector = 'bigquery')",
            "p.sql:3:17: column a: PRIMARY KEY ENFORCED is not yet supported; only NOT NULL and PRIMARY KEY are",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (connector = 'single_file', type = 'source', path = 'x', format = 'json')",
            "p.sql:3:17: column a: PRIMARY KEY has no use in a source; leave it out",
        ),
        (
            "CREATE TABLE out (a INT) WITH (connector = 'bigquery')",
            "p.sql:3:1: table out is created twice",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'bigquery', project = 'x', 'project' = 'y')",
            "p.sql:3:69: option 'project' is given twice",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'bigquery', project = \"x\")",
            "p.sql:3:54: the value of option 'project' is neither text in single quotes, a number, true, false nor an interval",
        ),
        (
            "DROP TABLE out",
            "p.sql:3:1: only CREATE TABLE and INSERT INTO ... SELECT are run",
        ),
        (
            "CREATE TABLE t (a INT, WITH (connector = 'bigquery')",
            "p.sql:3:29: Expected: a data type name, found: (",
        ),
        (
            "CREATE TABLE t (a INT",
            "p.sql:3:22: Expected: ',' or ')' after column definition, found: the end",
        ),
    ];
    for (statement, refusal) in cases {
        let sql = format!("{IMPULSE}{SINK}{statement};\n{insert}");
        assert_eq!(refusals(&sql), [refusal], "{statement}");
    }
    assert_eq!(
        refusals("CREATE TABLE t (a TEXT) WITH ('x"),
        ["p.sql:1:31: Unterminated string literal"]
    );
}

#[test]
fn each_mistake_of_an_insert_is_refused_at_its_place() {
    let pointer = "the embedded host does not run it; run this file on Arroyo (arroyo.dev), which does";
    let cases = [
        (
            "INSERT INTO out SELECT counter, 'x' FROM impuls",
            "p.sql:3:42: table impuls is read but no source of that name is created; did you mean 'impulse'?",
        ),
        (
            "INSERT INTO aut SELECT counter, 'x' FROM impulse",
            "p.sql:3:13: table aut is written but not created; did you mean 'out'?",
        ),
        (
            "INSERT INTO impulse SELECT counter, subtask_index FROM impulse",
            "p.sql:3:13: table impulse is a source; INSERT INTO takes a table with connector = 'bigquery'",
        ),
        (
            "INSERT INTO out SELECT counter FROM impulse",
            "p.sql:3:17: the query gives 1 columns, out takes 2; give one expression for each",
        ),
        (
            "INSERT INTO out SELECT 'x', 'y' FROM impulse",
            "p.sql:3:24: column a is BIGINT but is given TEXT; write CAST(... AS BIGINT) if that is meant, or change the column",
        ),
        (
            "INSERT INTO out SELECT counter, CAST(counter AS TEXT) FROM impulse",
            "p.sql:3:17: two expressions of the SELECT have the same name (a CAST has that of its column); name one of them with AS",
        ),
        (
            "INSERT INTO out SELECT counter, subtask_index FROM impulse",
            "p.sql:3:33: column b is TEXT but is given BIGINT; write CAST(... AS TEXT) if that is meant, or change the column",
        ),
        (
            "INSERT INTO out SELECT 1.5, 'x' FROM impulse",
            "p.sql:3:24: column a is BIGINT but is given DOUBLE; write CAST(... AS BIGINT) if that is meant, or change the column",
        ),
        (
            "INSERT INTO out (a, c) SELECT 1, 2 FROM impulse",
            "p.sql:3:21: out has no column c",
        ),
        (
            "INSERT INTO out SELECT countr, 'x' FROM impulse",
            "p.sql:3:24: there is no column countr; did you mean 'counter'?; known are: counter, subtask_index",
        ),
        (
            "INSERT INTO out SELECT nosuch(counter), 'x' FROM impulse",
            "p.sql:3:24: Invalid function 'nosuch'.",
        ),
        (
            "INSERT INTO out SELECT count(*), 'x' FROM impulse",
            "p.sql:3:24: an aggregate keeps rows over time: ",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse GROUP BY counter",
            "p.sql:3:50: an aggregate keeps rows over time: ",
        ),
        (
            "INSERT INTO out SELECT DISTINCT counter, 'x' FROM impulse",
            "p.sql:3:24: DISTINCT keeps rows over time: ",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse ORDER BY counter",
            "p.sql:3:50: ORDER BY needs an end of the input: ",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse LIMIT 3",
            "p.sql:3:50: LIMIT counts rows over checkpoints: ",
        ),
        (
            "INSERT INTO out SELECT row_number() OVER (ORDER BY counter), 'x' FROM impulse",
            "p.sql:3:37: a window function keeps rows over time: ",
        ),
        (
            "INSERT INTO out SELECT a.counter, 'x' FROM impulse a JOIN impulse b ON a.counter = b.counter",
            "p.sql:3:54: a join keeps rows over time: ",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse UNION ALL SELECT counter, 'y' FROM impulse",
            "p.sql:3:50: UNION reads several inputs: ",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse GROUP BY tumble(interval '1 second')",
            "p.sql:3:59: a window (tumble, hop, session) keeps rows over time: ",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse WHERE counter IN (SELECT counter FROM impulse)",
            "p.sql:3:64: a subquery in an expression keeps rows over time: ",
        ),
        (
            "INSERT INTO out WITH t AS (SELECT counter FROM impulse) SELECT 1, 'x'",
            "p.sql:3:1: the query reads no source; add FROM and a table created with a source connector",
        ),
        (
            "INSERT INTO out SELECT 1, CAST(DATE '2020-01-01' + INTERVAL '300000 years' AS TEXT) AS b FROM impulse",
            "p.sql:3:1: a constant of the query is too far out of range to compute with; write a nearer one",
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM a.impulse",
            "p.sql:3:44: table a.impulse is read, but the name of a table has one part",
        ),
        (
            "INSERT INTO out DEFAULT VALUES",
            "p.sql:3:1: only INSERT INTO table [(columns)] SELECT ... is run",
        ),
        (
            "INSERT INTO out VALUES (1, 'x')",
            "p.sql:3:1: the query reads no source; add FROM and a table created with a source connector",
        ),
        (
            "INSERT INTO out SELECT counter, CAST(now() AS TEXT) FROM impulse",
            "p.sql:3:38: now() would give the time this run began for every row; take the time from a column",
        ),
        (
            "INSERT OVERWRITE out SELECT counter, 'x' FROM impulse",
            "p.sql:3:8: INSERT with OVERWRITE is not supported; only INSERT INTO table [(columns)] SELECT ... is run",
        ),
    ];
    let mut wrong = Vec::new();
    for (insert, refusal) in cases {
        let refusal = if refusal.ends_with(": ") {
            format!("{refusal}{pointer}")
        } else {
            refusal.to_owned()
        };
        let said = refusals(&with_insert(insert));
        if said != [refusal.as_str()] {
            wrong.push((insert, said, refusal));
        }
    }
    assert_eq!(wrong, []);
}

#[test]
fn clauses_that_nobody_reads_are_refused_at_their_place() {
    let create = "is not supported; give columns and WITH (...) only";
    let with = "WITH (connector = 'bigquery')";
    let cases = [
        (
            format!("CREATE OR REPLACE TABLE t (a INT) {with}"),
            "25: CREATE TABLE with OR REPLACE",
        ),
        (
            format!("CREATE TEMPORARY TABLE t (a INT) {with}"),
            "24: CREATE TABLE with TEMPORARY",
        ),
        (
            format!("CREATE TABLE IF NOT EXISTS t (a INT) {with}"),
            "28: CREATE TABLE with IF NOT EXISTS",
        ),
        (
            format!("CREATE TABLE t (a INT, PRIMARY KEY (a)) {with}"),
            "14: CREATE TABLE with a table constraint (PRIMARY KEY goes behind each of its columns)",
        ),
        (
            format!("CREATE TABLE t (a INT) {with} COMMENT 'x'"),
            "54: CREATE TABLE with COMMENT",
        ),
        (
            format!("CREATE TABLE t (a INT) {with} AS SELECT 1"),
            "14: CREATE TABLE with AS SELECT",
        ),
        (
            "CREATE TABLE t LIKE impulse".to_owned(),
            "14: CREATE TABLE with LIKE",
        ),
        (
            "CREATE TABLE t CLONE impulse".to_owned(),
            "14: CREATE TABLE with CLONE",
        ),
        (
            format!("CREATE TABLE t (a INT) {with} ON COMMIT DROP"),
            "14: CREATE TABLE with ON COMMIT",
        ),
        (
            format!("CREATE TABLE t (a INT) {with} ORDER BY a"),
            "54: CREATE TABLE with ORDER BY",
        ),
    ];
    let insert = "INSERT INTO out SELECT counter, 'x' FROM impulse";
    for (statement, refusal) in cases {
        let said = refusals(&format!("{IMPULSE}{SINK}{statement};\n{insert}"));
        assert_eq!(
            said[0],
            format!("p.sql:3:{refusal} {create}"),
            "{statement}: {said:?}"
        );
    }
    let query = "in a query is not supported; leave it out";
    let run = "is not supported; only INSERT INTO table [(columns)] SELECT ... is run";
    let cases = [
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse TABLESAMPLE BERNOULLI (10)",
            "50: TABLESAMPLE",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse FOR UPDATE",
            "50: FOR",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM (SELECT counter FROM impulse FOR SHARE) t",
            "71: FOR",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse WITH (NOLOCK)",
            "50: table hints",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, upper('x') FILTER (WHERE false) FROM impulse",
            "44: FILTER behind a function",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, upper(DISTINCT 'x') FROM impulse",
            "33: DISTINCT or ALL in a function's arguments",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse FETCH FIRST 3 ROWS ONLY",
            "50: FETCH",
            query,
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse RETURNING a",
            "50: INSERT with RETURNING",
            run,
        ),
        (
            "INSERT INTO out SELECT counter, 'x' FROM impulse ON CONFLICT DO NOTHING",
            "50: INSERT with ON",
            run,
        ),
        (
            "INSERT INTO out PARTITION (a = 1) SELECT counter, 'x' FROM impulse",
            "17: INSERT with PARTITION",
            run,
        ),
        (
            "INSERT IGNORE INTO out SELECT counter, 'x' FROM impulse",
            "8: INSERT with IGNORE",
            run,
        ),
        (
            "INSERT OR REPLACE INTO out SELECT counter, 'x' FROM impulse",
            "8: INSERT with OR",
            run,
        ),
    ];
    let mut wrong = Vec::new();
    for (insert, refusal, rest) in cases {
        let (said, wanted) = (
            refusals(&with_insert(insert)),
            format!("p.sql:3:{refusal} {rest}"),
        );
        if said != [wanted.as_str()] {
            wrong.push((insert, said, wanted));
        }
    }
    assert_eq!(wrong, []);
}

#[test]
fn names_with_dots_and_quotes_are_told_apart() {
    let insert = "INSERT INTO out SELECT counter, 'x' FROM impulse";
    let cases = [
        (
            "CREATE TABLE x.t WITH (connector = 'impulse', event_rate = '1')",
            "p.sql:3:16: table x.t: the name of a table has one part here; name the BigQuery dataset with the option 'dataset'",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'single_file', csv.header = 'true', path = 'x')",
            "p.sql:3:57: an option's name with a dot needs single quotes: write 'csv.header' = ...",
        ),
    ];
    for (statement, refusal) in cases {
        assert_eq!(
            refusals(&format!("{IMPULSE}{SINK}{statement};\n{insert}")),
            [refusal]
        );
    }
    let sql = format!(
        "CREATE TABLE \"a\"\"b.c\" WITH (connector = 'impulse', event_rate = '1');\n{SINK}\
         INSERT INTO out SELECT counter, 'x' FROM \"a\"\"b.c\""
    );
    assert_eq!(parse(&sql).unwrap().source.name, "a\"b.c");
}

#[test]
fn casts_that_would_not_be_checked_are_refused() {
    let source = "CREATE TABLE s (d DATE[]) WITH (connector = 'single_file', path = 'x', format = 'json');\n";
    let sink = "CREATE TABLE out (t TIMESTAMP[]) WITH (connector = 'bigquery');\n";
    let implicit = refusals(&format!("{source}{sink}INSERT INTO out SELECT d FROM s"));
    assert_eq!(
        implicit,
        [
            "p.sql:3:24: column t is TIMESTAMP[] but is given DATE[]; write CAST(... AS TIMESTAMP[]) if that is meant, or change the column"
        ]
    );
    let explicit = refusals(&format!(
        "{source}{sink}INSERT INTO out SELECT CAST(d AS TIMESTAMP[]) FROM s"
    ));
    assert_eq!(
        explicit,
        [
            "p.sql:3:1: a cast from DATE[] to TIMESTAMP[] would not be checked for values out of range, and is not run; keep the type DATE[]"
        ]
    );
}

#[test]
fn a_file_without_one_insert_is_refused() {
    let no_insert = "p.sql:1:1: there is no INSERT INTO ... SELECT; add one, it is what runs";
    assert_eq!(refusals(""), [no_insert]);
    assert_eq!(refusals(&with_insert("")), [no_insert]);
    let two = "INSERT INTO out SELECT counter, 'x' FROM impulse;\nINSERT INTO out SELECT counter, 'y' FROM impulse;";
    let refusal = "p.sql:4:1: several INSERTs in one file are not yet supported; keep one, move this one to its own file";
    assert_eq!(refusals(&with_insert(two)), [refusal]);
    let select = "p.sql:3:1: a SELECT alone writes nowhere; write INSERT INTO a table created with connector = 'bigquery'";
    assert_eq!(refusals(&with_insert("SELECT 1")), [no_insert, select]);
}

#[test]
fn independent_mistakes_are_shown_together() {
    let sql = "CREATE TABLE a (x TXT) WITH (connector = 'kafka');
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = 'fast', speed = '1');
CREATE TABLE b (x INT;
CREATE TABLE out (a BIGINT, b TEXT) WITH (connector = 'bigquery');
INSERT INTO out SELECT 'x', 1 FROM impulse";
    let places: Vec<_> = parse(sql)
        .unwrap_err()
        .0
        .iter()
        .map(|error| error.place.to_string())
        .collect();
    assert_eq!(places, ["1:17", "1:30", "2:51", "2:72", "3:22"]);
    let option_and_type = "CREATE TABLE i WITH (connector = 'impulse', event_rate = '1', speed = '1');
CREATE TABLE o (a TEXT) WITH (connector = 'bigquery');
INSERT INTO o SELECT counter FROM i";
    let places: Vec<_> = parse(option_and_type)
        .unwrap_err()
        .0
        .iter()
        .map(|error| error.place.to_string())
        .collect();
    assert_eq!(places, ["1:63", "3:22"]);
    let two_columns = refusals(&with_insert("INSERT INTO out SELECT 'x', 1 FROM impulse"));
    assert_eq!(two_columns.len(), 2, "{two_columns:?}");
}

#[test]
fn tuning_options_do_not_change_the_fingerprint_but_source_query_table_and_mode_do() {
    let base = |rate: &str, options: &str, insert: &str| {
        let source = format!(
            "CREATE TABLE i WITH (connector = 'impulse', event_rate = '{rate}', message_count = '5');"
        );
        let sink = format!(
            "CREATE TABLE o (a BIGINT) WITH (connector = 'bigquery', project = 'p', dataset = 'd'{options});"
        );
        parse(&format!("{source}{sink}{insert}")).unwrap().fingerprint
    };
    let old = base("1", "", "INSERT INTO o SELECT counter FROM i").to_stored();
    let tuned = base(
        "9",
        ", 'write.streams' = '4'",
        "INSERT INTO o\n SELECT counter -- as it comes\n FROM i",
    );
    assert_eq!(tuned.difference(&old), None);
    let changed = base(
        "1",
        ", 'write.mode' = 'at_least_once', 'table' = 't'",
        "INSERT INTO o SELECT counter + 1 FROM i",
    );
    let difference = "the query was SELECT counter FROM i and is SELECT counter + 1 FROM i; \
                      the sink's table was not set and is t; the sink's write.mode was exactly_once and is at_least_once";
    assert_eq!(changed.difference(&old).as_deref(), Some(difference));
}
