//! Clauses that the parser takes and nobody here reads are refused: what is written must never silently mean nothing.
//!
//! Every structure is taken apart by name, so that a parser with one more clause does not compile until somebody has decided about it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CreateTable, Cte, Expr, Function, FunctionArgumentList, FunctionArguments, HiveDistributionStyle,
    HiveFormat, Insert, Query, Select, SelectItem, SetExpr, TableFactor, Visit, Visitor,
    WildcardAdditionalOptions, With,
};

use super::error::{Mistakes, Place};
use super::statements::Statement;

/// A clause: whether it is there, its name, and the words to look for its place by.
type Clause<'a> = (bool, &'a str, &'a [&'a str]);

/// Refuses clauses of a CREATE TABLE beside name, columns and WITH.
pub(super) fn refuse_in_create(
    create: &CreateTable,
    table: Place,
    statement: &Statement,
    mistakes: &mut Mistakes,
) {
    let CreateTable {
        name: _,
        columns: _,
        with_options: _,
        or_replace,
        temporary,
        external,
        global,
        if_not_exists,
        transient,
        volatile,
        iceberg,
        constraints,
        hive_distribution,
        hive_formats,
        table_properties,
        file_format,
        location,
        query,
        without_rowid,
        like,
        clone,
        engine,
        comment,
        auto_increment_offset,
        default_charset,
        collation,
        on_commit,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by,
        clustered_by,
        options,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_tags,
        external_volume,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
    } = create;
    let hive_format = hive_formats
        .as_ref()
        .is_some_and(|format| *format != HiveFormat::default());
    let distributed = *hive_distribution != HiveDistributionStyle::NONE;
    let clauses: &[Clause<'_>] = &[
        (query.is_some(), "AS SELECT", &[]),
        (*or_replace, "OR REPLACE", &[]),
        (*if_not_exists, "IF NOT EXISTS", &[]),
        (*temporary, "TEMPORARY", &[]),
        (*external, "EXTERNAL", &[]),
        (global.is_some(), "GLOBAL or LOCAL", &[]),
        (*transient, "TRANSIENT", &[]),
        (*volatile, "VOLATILE", &[]),
        (*iceberg, "ICEBERG", &[]),
        (
            !constraints.is_empty(),
            "a table constraint (PRIMARY KEY goes behind each of its columns)",
            &[],
        ),
        (partition_by.is_some() || distributed, "PARTITION BY", &[]),
        (like.is_some(), "LIKE", &[]),
        (clone.is_some(), "CLONE", &[]),
        (comment.is_some(), "COMMENT", &["COMMENT"]),
        (on_commit.is_some(), "ON COMMIT", &[]),
        (on_cluster.is_some(), "ON CLUSTER", &[]),
        (cluster_by.is_some(), "CLUSTER BY", &["CLUSTER"]),
        (clustered_by.is_some(), "CLUSTERED BY", &["CLUSTERED"]),
        (primary_key.is_some(), "PRIMARY KEY", &[]),
        (order_by.is_some(), "ORDER BY", &["ORDER"]),
        (options.is_some(), "OPTIONS", &["OPTIONS"]),
        (!table_properties.is_empty(), "TBLPROPERTIES", &["TBLPROPERTIES"]),
        (
            file_format.is_some() || hive_format,
            "STORED AS or ROW FORMAT",
            &["STORED", "ROW"],
        ),
        (location.is_some(), "LOCATION", &["LOCATION"]),
        (*without_rowid, "WITHOUT ROWID", &[]),
        (*strict, "STRICT", &[]),
        (engine.is_some(), "ENGINE", &["ENGINE"]),
        (
            auto_increment_offset.is_some(),
            "AUTO_INCREMENT",
            &["AUTO_INCREMENT"],
        ),
        (default_charset.is_some(), "DEFAULT CHARSET", &["CHARSET"]),
        (
            collation.is_some() || default_ddl_collation.is_some(),
            "COLLATE",
            &["COLLATE"],
        ),
        (*copy_grants, "COPY GRANTS", &[]),
        (enable_schema_evolution.is_some(), "ENABLE_SCHEMA_EVOLUTION", &[]),
        (change_tracking.is_some(), "CHANGE_TRACKING", &[]),
        (
            data_retention_time_in_days.is_some(),
            "DATA_RETENTION_TIME_IN_DAYS",
            &[],
        ),
        (
            max_data_extension_time_in_days.is_some(),
            "MAX_DATA_EXTENSION_TIME_IN_DAYS",
            &[],
        ),
        (with_aggregation_policy.is_some(), "AGGREGATION POLICY", &[]),
        (with_row_access_policy.is_some(), "ROW ACCESS POLICY", &[]),
        (with_tags.is_some(), "TAG", &[]),
        (external_volume.is_some(), "EXTERNAL_VOLUME", &[]),
        (base_location.is_some(), "BASE_LOCATION", &[]),
        (catalog.is_some() || catalog_sync.is_some(), "CATALOG", &[]),
        (
            storage_serialization_policy.is_some(),
            "STORAGE_SERIALIZATION_POLICY",
            &[],
        ),
    ];
    for (name, place) in there(clauses, statement) {
        mistakes.add(
            place.unwrap_or(table),
            format!("CREATE TABLE with {name} is not supported; give columns and WITH (...) only"),
        );
    }
}

/// Refuses clauses of an INSERT beside table, columns and query.
pub(super) fn refuse_in_insert(insert: &Insert, statement: &Statement, mistakes: &mut Mistakes) {
    let Insert {
        // `INSERT t` and `INSERT INTO TABLE t` mean the same.
        into: _,
        has_table_keyword: _,
        table: _,
        columns: _,
        source: _,
        or,
        ignore,
        table_alias,
        overwrite,
        assignments,
        partitioned,
        after_columns,
        on,
        returning,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
    } = insert;
    let clauses: &[Clause<'_>] = &[
        (or.is_some(), "OR", &["OR"]),
        (*ignore, "IGNORE", &["IGNORE"]),
        (*overwrite, "OVERWRITE", &["OVERWRITE"]),
        (*replace_into, "REPLACE", &["REPLACE"]),
        (
            priority.is_some(),
            "a priority",
            &["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY"],
        ),
        (
            table_alias.is_some() || insert_alias.is_some(),
            "an alias",
            &["AS"],
        ),
        (!assignments.is_empty(), "SET", &["SET"]),
        (
            partitioned.is_some() || !after_columns.is_empty(),
            "PARTITION",
            &["PARTITION"],
        ),
        (on.is_some(), "ON", &["ON"]),
        (returning.is_some(), "RETURNING", &["RETURNING"]),
        (settings.is_some(), "SETTINGS", &["SETTINGS"]),
        (format_clause.is_some(), "FORMAT", &["FORMAT"]),
    ];
    for (name, place) in there(clauses, statement) {
        let message = format!(
            "INSERT with {name} is not supported; only INSERT INTO table [(columns)] SELECT ... is run"
        );
        mistakes.add(place.unwrap_or(statement.start()), message);
    }
}

/// Refuses clauses of a query, and of those inside it, that planning would skip; what it refuses itself, with a better message, is left to it.
pub(super) fn refuse_in_query(query: &Query, statement: &Statement, mistakes: &mut Mistakes) {
    let mut walk = Walk { statement, mistakes };
    let walked = query.visit(&mut walk);
    debug_assert!(walked.is_continue(), "the walk never breaks off");
}

fn there<'a>(
    clauses: &'a [Clause<'a>],
    statement: &'a Statement,
) -> impl Iterator<Item = (&'a str, Option<Place>)> {
    clauses
        .iter()
        .filter(|(there, ..)| *there)
        .map(|(_, name, words)| (*name, words.iter().find_map(|word| statement.find_word(word))))
}

struct Walk<'a> {
    statement: &'a Statement,
    mistakes: &'a mut Mistakes,
}

impl Visitor for Walk<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let Query {
            with,
            body,
            // Planned, and refused there.
            order_by: _,
            limit: _,
            offset: _,
            limit_by,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
        } = query;
        self.refuse(&[
            (!limit_by.is_empty(), "LIMIT BY", &["LIMIT"]),
            (fetch.is_some(), "FETCH", &["FETCH"]),
            (!locks.is_empty() || for_clause.is_some(), "FOR", &["FOR"]),
            (settings.is_some(), "SETTINGS", &["SETTINGS"]),
            (format_clause.is_some(), "FORMAT", &["FORMAT"]),
        ]);
        if let Some(With {
            with_token: _,
            // Planned, and refused there.
            recursive: _,
            cte_tables,
        }) = with
        {
            for Cte {
                alias: _,
                query: _,
                closing_paren_token: _,
                from,
                materialized,
            } in cte_tables
            {
                self.refuse(&[
                    (from.is_some(), "FROM behind a WITH", &["WITH"]),
                    (materialized.is_some(), "MATERIALIZED", &["MATERIALIZED"]),
                ]);
            }
        }
        self.body(body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table {
                name: _,
                alias: _,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => self.refuse(&[
                (args.is_some(), "a function as a table", &["FROM"]),
                (!with_hints.is_empty(), "table hints", &["WITH"]),
                (version.is_some(), "a version of a table", &["FOR", "FROM"]),
                (*with_ordinality, "WITH ORDINALITY", &["ORDINALITY"]),
                (!partitions.is_empty(), "PARTITION", &["PARTITION"]),
                (json_path.is_some(), "a path behind a table", &["FROM"]),
                (sample.is_some(), "TABLESAMPLE", &["TABLESAMPLE", "SAMPLE"]),
                (
                    !index_hints.is_empty(),
                    "index hints",
                    &["USE", "IGNORE", "FORCE"],
                ),
            ]),
            TableFactor::Derived {
                lateral,
                subquery: _,
                alias: _,
            } => {
                self.refuse(&[(*lateral, "LATERAL", &["LATERAL"])]);
            }
            // Planned, or refused there.
            TableFactor::NestedJoin { .. } | TableFactor::UNNEST { .. } => {}
            _ => self.refuse(&[(true, "this kind of table", &["FROM"])]),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr {
            self.function(function);
        }
        ControlFlow::Continue(())
    }
}

impl Walk<'_> {
    fn refuse(&mut self, clauses: &[Clause<'_>]) {
        for (name, place) in there(clauses, self.statement) {
            let message = format!("{name} in a query is not supported; leave it out");
            self.mistakes
                .add(place.unwrap_or(self.statement.start()), message);
        }
    }

    /// Queries inside are visited on their own.
    fn body(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::SetOperation {
                op: _,
                set_quantifier: _,
                left,
                right,
            } => {
                self.body(left);
                self.body(right);
            }
            SetExpr::Query(_)
            | SetExpr::Values(_)
            | SetExpr::Insert(_)
            | SetExpr::Update(_)
            | SetExpr::Table(_) => {}
        }
    }

    fn select(&mut self, select: &Select) {
        let Select {
            select_token: _,
            projection,
            from: _,
            selection: _,
            // Spellings of the same.
            flavor: _,
            top_before_distinct: _,
            window_before_qualify: _,
            // Planned, and refused there.
            distinct: _,
            group_by: _,
            having: _,
            named_window: _,
            top,
            into,
            lateral_views,
            prewhere,
            cluster_by,
            distribute_by,
            sort_by,
            qualify,
            value_table_mode,
            connect_by,
        } = select;
        self.refuse(&[
            (top.is_some(), "TOP", &["TOP"]),
            (into.is_some(), "INTO behind SELECT", &["SELECT"]),
            (!lateral_views.is_empty(), "LATERAL VIEW", &["LATERAL"]),
            (prewhere.is_some(), "PREWHERE", &["PREWHERE"]),
            (!cluster_by.is_empty(), "CLUSTER BY", &["CLUSTER"]),
            (!distribute_by.is_empty(), "DISTRIBUTE BY", &["DISTRIBUTE"]),
            (!sort_by.is_empty(), "SORT BY", &["SORT"]),
            (qualify.is_some(), "QUALIFY", &["QUALIFY"]),
            (value_table_mode.is_some(), "SELECT AS", &["SELECT"]),
            (connect_by.is_some(), "CONNECT BY", &["CONNECT"]),
        ]);
        for item in projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
                let WildcardAdditionalOptions {
                    wildcard_token: _,
                    // Planned.
                    opt_exclude: _,
                    opt_except: _,
                    opt_replace: _,
                    opt_ilike,
                    opt_rename,
                } = options;
                self.refuse(&[
                    (opt_ilike.is_some(), "ILIKE behind *", &["ILIKE"]),
                    (opt_rename.is_some(), "RENAME behind *", &["RENAME"]),
                ]);
            }
        }
    }

    fn function(&mut self, function: &Function) {
        let Function {
            name,
            args,
            // Planned: a window is refused there.
            over,
            uses_odbc_syntax: _,
            parameters,
            filter,
            null_treatment,
            within_group,
        } = function;
        if over.is_some() {
            return;
        }
        let name = name
            .0
            .last()
            .and_then(|part| part.as_ident())
            .map_or("", |ident| &ident.value);
        let at = [name];
        let (distinct, clauses) = match args {
            FunctionArguments::List(FunctionArgumentList {
                duplicate_treatment,
                args: _,
                clauses,
            }) => (duplicate_treatment.is_some(), !clauses.is_empty()),
            FunctionArguments::None | FunctionArguments::Subquery(_) => (false, false),
        };
        self.refuse(&[
            (
                !matches!(parameters, FunctionArguments::None),
                "a function with two lists of arguments",
                &at,
            ),
            (distinct, "DISTINCT or ALL in a function's arguments", &at),
            (clauses, "a clause in a function's arguments", &at),
            (filter.is_some(), "FILTER behind a function", &["FILTER"]),
            (
                null_treatment.is_some(),
                "IGNORE or RESPECT NULLS",
                &["IGNORE", "RESPECT"],
            ),
            (!within_group.is_empty(), "WITHIN GROUP", &["WITHIN"]),
        ]);
    }
}
