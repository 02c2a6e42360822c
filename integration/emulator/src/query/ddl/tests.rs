//! Statements as they are read.

use serde_json::{Map, Value, json};

use super::partition::{By, Partition};
use super::*;
use crate::query::parameters::Parameters;
use crate::schema::{Kind, Mode, RangeElement};

fn read(sql: &str) -> Result<Statement, QueryError> {
    parse(&Text::read(sql, &Parameters::default())?)
}

fn table(sql: &str) -> CreateTable {
    match read(sql) {
        Ok(Statement::CreateTable(table)) => *table,
        other => panic!("{sql}: {other:?}"),
    }
}

fn name(parts: &[&str]) -> Name {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn text(max_length: Option<i64>) -> Kind {
    Kind::String { max_length }
}

fn described(column: Column, description: &str) -> Column {
    let description = description.to_owned();
    Column {
        description,
        ..column
    }
}

#[test]
fn columns_of_every_type_are_read() {
    let table = table(
        "CREATE TABLE d.t (
            a INT64 NOT NULL OPTIONS(description='the key'),
            b STRING(10) DEFAULT 'x' || /* why */ \"y\",
            `c d` NUMERIC(10, 2) NOT NULL DEFAULT 1.5,
            e ARRAY<STRUCT<f BIGNUMERIC NOT NULL OPTIONS(description=\"inner\"), g ARRAY<STRUCT<h BYTES(3)>>>>,
            i RANGE<DATE>, j TIMESTAMP(12), k timestamp DEFAULT CURRENT_TIMESTAMP(),
            l JSON, m GEOGRAPHY, n INTERVAL, o FLOAT64, p BOOLEAN, q DATE, r DATETIME, s TIME, u DECIMAL(5),
        )",
    );
    let defaulted = |column: Column, sql: &str| Column {
        default_value_expression: Some(sql.to_owned()),
        ..column
    };
    let null = |name: &str, kind| Column::new(name, kind, Mode::Nullable);
    let digits = |precision, scale| Kind::Numeric { precision, scale };
    let big = Kind::BigNumeric {
        precision: None,
        scale: None,
    };
    let h = null("h", Kind::Bytes { max_length: Some(3) });
    let inner = vec![
        described(Column::new("f", big, Mode::Required), "inner"),
        Column::new("g", Kind::Struct(vec![h]), Mode::Repeated),
    ];
    let want = vec![
        described(Column::new("a", Kind::Int64, Mode::Required), "the key"),
        defaulted(null("b", text(Some(10))), "'x' || /* why */ \"y\""),
        defaulted(
            Column::new("c d", digits(Some(10), Some(2)), Mode::Required),
            "1.5",
        ),
        Column::new("e", Kind::Struct(inner), Mode::Repeated),
        null("i", Kind::Range(RangeElement::Date)),
        null("j", Kind::TimestampPicoseconds),
        defaulted(null("k", Kind::Timestamp), "CURRENT_TIMESTAMP()"),
        null("l", Kind::Json),
        null("m", Kind::Geography),
        null("n", Kind::Interval),
        null("o", Kind::Float64),
        null("p", Kind::Bool),
        null("q", Kind::Date),
        null("r", Kind::Datetime),
        null("s", Kind::Time),
        null("u", digits(Some(5), None)),
    ];
    assert_eq!(table.name, name(&["d", "t"]));
    assert_eq!(table.columns, Some(want));
}

#[test]
fn everything_around_the_columns_is_read() {
    let table = table(
        "create or replace table `p.d`.t (
            id INT64, day DATE, note STRING,
            PRIMARY KEY (id, day) NOT ENFORCED,
            CONSTRAINT fk FOREIGN KEY (note) REFERENCES d.u (name) NOT ENFORCED
        ) DEFAULT COLLATE 'und:ci' PARTITION BY DATE_TRUNC(day, MONTH) CLUSTER BY id, note
        OPTIONS (description = 'text', labels = [('a', 'b')], max_staleness = INTERVAL 15 MINUTE);",
    );
    assert_eq!(table.name, name(&["p", "d", "t"]));
    assert_eq!(table.create, Create::OrReplace);
    assert_eq!(table.primary_key, Some(name(&["id", "day"])));
    let key = ForeignKey {
        name: Some("fk".to_owned()),
        columns: name(&["note"]),
        table: name(&["d", "u"]),
        referenced: name(&["name"]),
    };
    assert_eq!(table.foreign_keys, [key]);
    assert_eq!(table.default_collation.as_deref(), Some("und:ci"));
    let partition = Partition::Column {
        unit: "MONTH".to_owned(),
        field: "day".to_owned(),
        by: By::Date,
    };
    assert_eq!(table.partition, Some(partition));
    assert_eq!(table.cluster, name(&["id", "note"]));
    let mut rest = Map::new();
    options::table(&mut rest, &table.options, 0).unwrap();
    let want = json!({ "description": "text", "labels": { "a": "b" }, "maxStaleness": "0-0 0 0:15:0" });
    assert_eq!(Value::Object(rest), want);
    assert_eq!(table.query, None);
}

#[test]
fn a_column_can_be_the_key_and_a_query_can_give_the_rows() {
    let keyed = table("CREATE TABLE IF NOT EXISTS t (id STRING PRIMARY KEY NOT ENFORCED)");
    assert_eq!(keyed.create, Create::IfNotExists);
    assert_eq!(keyed.primary_key, Some(name(&["id"])));
    let selected = table("CREATE TABLE t CLUSTER BY a AS SELECT 1 AS a FROM d.u");
    assert_eq!(selected.columns, None);
    let query = selected.query.map(|query| query.to_string());
    assert_eq!(query.as_deref(), Some("SELECT 1 AS a FROM d.u"));
}

#[test]
fn every_way_of_partitioning_is_read() {
    let unit = |unit: &str| unit.to_owned();
    let column = |unit: &str, by| Partition::Column {
        unit: unit.to_owned(),
        field: "at".to_owned(),
        by,
    };
    for (sql, want) in [
        ("_PARTITIONDATE", Partition::Ingestion { unit: unit("DAY") }),
        ("DATE(_PARTITIONTIME)", Partition::Ingestion { unit: unit("DAY") }),
        (
            "TIMESTAMP_TRUNC(_PARTITIONTIME, HOUR)",
            Partition::Ingestion { unit: unit("HOUR") },
        ),
        (
            "DATE_TRUNC(_PARTITIONDATE, MONTH)",
            Partition::Ingestion { unit: unit("MONTH") },
        ),
        ("at", column("DAY", By::Date)),
        ("DATE(at)", column("DAY", By::DateOf)),
        ("DATE_TRUNC(at, year)", column("YEAR", By::Date)),
        ("TIMESTAMP_TRUNC(at, HOUR)", column("HOUR", By::Timestamp)),
        ("DATETIME_TRUNC(at, DAY)", column("DAY", By::Datetime)),
        (
            "RANGE_BUCKET(at, GENERATE_ARRAY(-5, 100, 10))",
            Partition::Range {
                field: "at".to_owned(),
                start: -5,
                end: 100,
                interval: 10,
            },
        ),
    ] {
        let table = table(&format!("CREATE TABLE t (at TIMESTAMP) PARTITION BY {sql}"));
        assert_eq!(table.partition, Some(want), "{sql}");
    }
    let error = read("CREATE TABLE t (at TIMESTAMP) PARTITION BY EXTRACT(DAY FROM at)").unwrap_err();
    assert!(
        error.to_string().starts_with("PARTITION BY expression must be"),
        "{error}"
    );
}

#[test]
fn alterations_are_read_in_their_order() {
    let sql = "ALTER TABLE IF EXISTS d.t
        ADD COLUMN IF NOT EXISTS a STRUCT<b INT64>,
        ALTER COLUMN c DROP NOT NULL,
        ALTER COLUMN IF EXISTS c SET DEFAULT 1 + 2,
        ALTER COLUMN c DROP DEFAULT,
        SET DEFAULT COLLATE '',
        ADD PRIMARY KEY (c) NOT ENFORCED,
        ADD CONSTRAINT IF NOT EXISTS k FOREIGN KEY (c) REFERENCES u(x) NOT ENFORCED,
        DROP PRIMARY KEY IF EXISTS,
        DROP CONSTRAINT k";
    let column = || "c".to_owned();
    let b = Column::new("b", Kind::Int64, Mode::Nullable);
    let key = ForeignKey {
        name: Some("k".to_owned()),
        columns: name(&["c"]),
        table: name(&["u"]),
        referenced: name(&["x"]),
    };
    let actions = vec![
        Action::AddColumn {
            column: Column::new("a", Kind::Struct(vec![b]), Mode::Nullable),
            if_not_exists: true,
        },
        Action::DropNotNull {
            column: column(),
            if_exists: false,
        },
        Action::SetDefault {
            column: column(),
            if_exists: true,
            expression: "1 + 2".to_owned(),
        },
        Action::DropDefault {
            column: column(),
            if_exists: false,
        },
        Action::SetDefaultCollation(String::new()),
        Action::AddPrimaryKey {
            columns: vec![column()],
            if_not_exists: false,
        },
        Action::AddForeignKey {
            key,
            if_not_exists: true,
        },
        Action::DropPrimaryKey { if_exists: true },
        Action::DropConstraint {
            name: "k".to_owned(),
            if_exists: false,
        },
    ];
    let want = AlterTable {
        name: name(&["d", "t"]),
        if_exists: true,
        actions,
    };
    assert_eq!(read(sql), Ok(Statement::AlterTable(want)));
}

#[test]
fn a_views_query_is_kept_as_it_was_written() {
    let sql = "CREATE VIEW IF NOT EXISTS v (x OPTIONS(description='X'), y) OPTIONS(friendly_name='V') AS\n\
               -- why\nSELECT a,\n  b /* é */ FROM d.t ;\n";
    let Ok(Statement::CreateView(view)) = read(sql) else {
        panic!("{:?}", read(sql));
    };
    assert_eq!(view.query, "SELECT a,\n  b /* é */ FROM d.t");
    assert_eq!(view.create, Create::IfNotExists);
    let names: Vec<&str> = view.columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x", "y"]);
}

#[test]
fn the_other_statements_are_read() {
    let options = Options::new;
    for (sql, want) in [
        (
            "DROP TABLE IF EXISTS d.t",
            Statement::DropTable {
                name: name(&["d", "t"]),
                if_exists: true,
            },
        ),
        (
            "DROP VIEW v",
            Statement::DropView {
                name: name(&["v"]),
                if_exists: false,
            },
        ),
        (
            "TRUNCATE TABLE d.t",
            Statement::TruncateTable {
                name: name(&["d", "t"]),
            },
        ),
        (
            "CREATE SCHEMA IF NOT EXISTS `my-project.d`",
            Statement::CreateSchema {
                name: name(&["my-project", "d"]),
                if_not_exists: true,
                options: options(),
            },
        ),
        (
            "DROP SCHEMA d CASCADE",
            Statement::DropSchema {
                name: name(&["d"]),
                if_exists: false,
                cascade: true,
            },
        ),
    ] {
        assert_eq!(read(sql), Ok(want), "{sql}");
    }
    let Ok(Statement::Insert(insert)) = read("INSERT INTO d.t (a, b) VALUES (1, DEFAULT), (2, 'x')") else {
        panic!("no INSERT");
    };
    assert_eq!(insert.columns, Some(name(&["a", "b"])));
    let Source::Values(rows) = insert.source else {
        panic!("no VALUES");
    };
    let shown = |value: &Option<Expr>| value.as_ref().map(ToString::to_string);
    let shown: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(shown, [[some("1"), None], [some("2"), some("'x'")]]);
    let Ok(Statement::Insert(insert)) = read("INSERT my-project.d.t (SELECT 1 AS a)") else {
        panic!("no INSERT");
    };
    assert_eq!(
        (insert.name, insert.columns),
        (name(&["my-project", "d", "t"]), None)
    );
}

#[test]
fn options_are_constants_of_their_types() {
    let run = |options: &str| {
        let mut rest = Map::from_iter([("description".to_owned(), json!("old"))]);
        let table = table(&format!("CREATE TABLE t (a INT64) OPTIONS({options})"));
        options::table(&mut rest, &table.options, 1_000).map(|()| Value::Object(rest))
    };
    for (sql, want) in [
        ("", json!({ "description": "old" })),
        ("description = NULL", json!({})),
        (
            "friendly_name = \"F\"",
            json!({ "description": "old", "friendlyName": "F" }),
        ),
        (
            "labels = [STRUCT('a', 'b'), ('c', '')]",
            json!({ "description": "old", "labels": { "a": "b", "c": "" } }),
        ),
        (
            "expiration_timestamp = TIMESTAMP '2030-01-01 00:00:00 UTC'",
            json!({ "description": "old", "expirationTime": "1893456000000" }),
        ),
        (
            "expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 1 DAY)",
            json!({ "description": "old", "expirationTime": "86401000" }),
        ),
        (
            "max_staleness = INTERVAL '0-0 0 0:15:0' YEAR TO SECOND",
            json!({ "description": "old", "maxStaleness": "0-0 0 0:15:0" }),
        ),
    ] {
        assert_eq!(run(sql), Ok(want), "{sql}");
    }
    for (sql, text) in [
        ("colour = 'red'", "Unknown option: colour"),
        (
            "description = 1",
            "Option description must be a constant of type STRING",
        ),
        (
            "max_staleness = '15 minutes'",
            "Option max_staleness must be a constant of type INTERVAL",
        ),
        (
            "require_partition_filter = 1",
            "Option require_partition_filter must be a constant of type BOOL",
        ),
        (
            "partition_expiration_days = 3",
            "partition_expiration_days can only be set on a table that is partitioned by time",
        ),
    ] {
        assert_eq!(run(sql), Err(QueryError::Invalid(text.to_owned())), "{sql}");
    }
}

#[test]
fn what_cannot_be_read_says_what_and_where() {
    let deep = format!(
        "CREATE TABLE t (a {}INT64{})",
        "STRUCT<a ".repeat(60),
        ">".repeat(60)
    );
    for (sql, text) in [
        (
            "CREATE",
            "Syntax error: Expected an identifier but got end of statement",
        ),
        (
            "CREATE TABLE t",
            "Syntax error: Expected \"(\" or keyword AS but got end of statement",
        ),
        (
            "CREATE TABLE t (a INT64) CLUSTERED BY a",
            "Syntax error: Expected end of statement but got identifier CLUSTERED at [1:26]",
        ),
        ("CREATE TABLE t (a MONEY)", "Type not found: MONEY"),
        (
            "CREATE TABLE t (a\n ARRAY<INT64 NOT NULL>)",
            "Syntax error: Expected \">\" but got identifier NOT at [2:14]",
        ),
        (
            "CREATE TABLE t (a ARRAY<ARRAY<INT64>>)",
            "Array of arrays is not supported; put a STRUCT between them",
        ),
        (
            "CREATE TABLE t (a INT64, PRIMARY KEY (a))",
            "Enforced primary keys are not supported. Add NOT ENFORCED to the primary key.",
        ),
        (
            "CREATE TABLE t (a ARRAY<INT64> NOT NULL)",
            "NOT NULL cannot be used with the ARRAY column a: an ARRAY is never NULL",
        ),
        (deep.as_str(), "The type is nested too deep: more than 50 levels"),
        (
            "CREATE TABLE t LIKE u",
            "Statement not supported by this emulator: CREATE TABLE LIKE",
        ),
        (
            "CREATE FUNCTION f() AS (1)",
            "Statement not supported by this emulator: CREATE FUNCTION",
        ),
        (
            "ALTER TABLE t DROP COLUMN a",
            "Statement not supported by this emulator: ALTER TABLE DROP COLUMN",
        ),
        (
            "ALTER TABLE t ALTER COLUMN a SET DATA TYPE STRING",
            "Statement not supported by this emulator: ALTER COLUMN SET DATA TYPE",
        ),
        (
            "DROP TABLE t; DROP TABLE u",
            "Scripts of several statements are not supported by this emulator. Send one statement.",
        ),
    ] {
        let error = read(sql).unwrap_err().to_string();
        assert_eq!(error, text, "{sql}");
    }
}
