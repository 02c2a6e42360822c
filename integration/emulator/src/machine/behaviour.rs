//! What the emulator knows of BigQuery, piece by piece, so that each piece can be unlearned.
//!
//! A conformance test that still passes when the behaviour it is about is gone tests nothing; and a test of a client
//! proves more when it is shown to notice a server that errs as others do.

use serde::{Deserialize, Serialize};

/// Makes the enum and its list from one table.
macro_rules! behaviours {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A piece of BigQuery's behaviour. All are kept unless named in
        /// [`Switches::unlearned`](super::Switches::unlearned).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Behaviour {
            $($(#[$doc])* $name,)*
        }

        impl Behaviour {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

behaviours! {
    // Appends (write-api.md 1.2, 2.1, 4).
    /// An append answers the offset of its first row; unlearned, that of the next.
    AnswersFirstRowOffset,
    /// An append answers the offset that its rows got; unlearned, the one that was asked for, or 0.
    AnswersWhereRowsAre,
    /// An append needs no offset; unlearned, it is refused without.
    AppendsWithoutOffset,
    /// An offset below the end is refused; unlearned, the rows are appended again.
    OffsetBelowEndExists,
    /// An offset above the end is refused; unlearned, the rows are appended at the end.
    OffsetAboveEndOutOfRange,
    /// A negative offset is invalid; unlearned, it is out of range.
    NegativeOffsetInvalid,
    /// A finalized stream takes no appends.
    FinalizedTakesNoAppends,
    /// An append without rows is refused.
    EmptyAppendRefused,
    /// Later requests of a connection may leave out stream and schema.
    LaterRequestsInherit,
    /// The default stream refuses an offset; unlearned, it ignores it.
    DefaultStreamTakesNoOffset,
    /// The default stream answers no offset.
    DefaultStreamAnswersNoOffset,
    /// Every answer names the stream it is about.
    EchoesStream,
    /// A refused request is answered like any other; unlearned, it is passed over in silence.
    EveryRequestAnswered,
    /// A request of up to 20 MB is taken, also with a single row; unlearned, one of up to 10 MB.
    LargeRequestsTaken,
    /// Too large a request is refused.
    RequestSizeLimited,

    // Connections (write-api.md 2.6, 2.7, 3.6, 3.7).
    /// A call without any request is refused.
    EmptyCallNotRouted,
    /// A half-closed call ends well.
    HalfCloseEndsWell,
    /// Only connections on default streams switch streams; unlearned, all do.
    SwitchesDefaultStreamsOnly,
    /// A later writer schema on an application stream is not even read.
    LaterSchemaIgnored,
    /// A newer connection on an application stream ends the older one.
    NewestConnectionWins,
    /// The default stream has any number of connections; unlearned, the newest wins there too.
    DefaultStreamNotFenced,
    /// A stream that another process has written to can be gone on with.
    AnyProcessGoesOn,
    /// Calls without traffic are closed.
    IdleCallsClosed,
    /// Outside the US the routing header is needed.
    RoutingHeaderNeeded,
    /// It may be percent-encoded, and may name the location alone; unlearned, only names as they are are read.
    RoutingHeaderForms,
    /// The first `trace_id` of a connection counts; unlearned, each request's is recorded as that of another call.
    FirstTraceIdCounts,

    /// A server that restarts says so; unlearned, its calls end without a reason.
    RestartSaysSo,

    // Streams (write-api.md 1.2, 2, 7.3).
    /// Streams without traffic expire.
    StreamsExpire,
    /// A PENDING stream that is finalized waits four hours for its commit; unlearned, as long as one that is not.
    FinalizedPendingExpires,
    /// A stream dies with its table; unlearned, a table of the same name takes it over if its columns are the same.
    StreamsDieWithTable,
    /// The default stream is known by its short name too.
    ShortDefaultName,
    /// A day behind the table's name is for tables partitioned by the day of ingestion, and for near days; unlearned,
    /// it is ignored.
    DayDecoratorsChecked,
    /// Rows that are written to a day are in its partition; unlearned, in that of the time at which they come.
    DayDecoratorsFollowed,
    /// The server chooses a stream's name; unlearned, it takes the caller's.
    ServerChoosesName,
    /// The default stream has no times; unlearned, it has its table's.
    DefaultStreamHasNoTimes,
    /// Streams have a location in either view.
    LocationAnswered,
    /// A COMMITTED stream has a time of commit, that of its creation, and a PENDING one has when it is committed.
    CommitTimeAnswered,
    /// The schema that is answered has lengths, precisions, default values and elements.
    SchemaDetailsAnswered,
    /// A table has at most 10,000 columns.
    ColumnsLimited,
    /// CreateWriteStream answers the table's schema.
    CreateAnswersSchema,
    /// GetWriteStream answers the schema only when asked for the full view.
    BasicViewHasNoSchema,
    /// A missing table has a code and a text of its own; unlearned, UNKNOWN.
    MissingTableNotFound,
    /// So has an unknown stream.
    UnknownStreamNotFound,

    // Changes of columns (write-api.md 7.3).
    /// A connection whose writer schema is older than the table goes on; unlearned, it is refused.
    OldWriterGoesOn,
    /// A connection is told of new columns.
    UpdatedSchemaTold,
    /// It is told with a success only; unlearned, with a duplicate too.
    UpdatedSchemaWithSuccessOnly,
    /// Those who append learn of new columns late; unlearned, at once.
    AppendersLearnLate,
    /// New columns are written on the streams there are; unlearned, a change is the end of them.
    StreamsOutliveChanges,
    /// GetWriteStream knows new columns before those who append do; unlearned, with them.
    ViewKnowsFirst,

    // Quotas (write-api.md 4).
    /// CreateWriteStream has a quota.
    CreatesLimited,
    /// Live streams have one where it is set.
    LiveStreamsLimited,
    /// Connections have a quota.
    ConnectionsLimited,
    /// Those in one location do not use up that of another.
    ConnectionsCountedByLocation,
    /// There are more of them in US and EU; unlearned, as many as elsewhere.
    MultiRegionsTakeMoreConnections,
    /// Bytes appended have a quota, where one is set.
    ThroughputLimited,
    /// And another one over a longer time.
    LongTermThroughputLimited,

    // Errors (write-api.md 3.1).
    /// A call's status carries the `StorageError` in its details.
    StorageErrorInDetails,
    /// And alone in a trailer of its own.
    StorageErrorInTrailer,

    // Visibility (write-api.md 2.2 to 2.4).
    /// Rows of BUFFERED and PENDING streams are held back.
    HeldUntilPublished,
    /// Rows of COMMITTED streams are visible when they are acknowledged; unlearned, when the stream is finalized.
    CommittedVisibleAtOnce,
    /// Rows of the default stream are visible when they are acknowledged; unlearned, never.
    DefaultStreamVisibleAtOnce,
    /// A flush shows the row at its offset; unlearned, only those before it.
    FlushIsInclusive,
    /// A flush shows no row behind its offset; unlearned, all there are.
    FlushStopsAtOffset,
    /// A flush shows each row once; unlearned, what was visible is inserted again.
    FlushShowsRowsOnce,
    /// A flush beyond the end is refused; unlearned, it shows all there is.
    FlushBeyondEndRefused,
    /// A finalized stream takes no flush.
    FinalizedTakesNoFlush,
    /// A flush needs an offset; unlearned, without one it shows everything.
    FlushNeedsOffset,
    /// Only BUFFERED streams are flushed; unlearned, others answer OK.
    FlushesBufferedOnly,
    /// The default stream is neither finalized nor flushed; unlearned, both are answered well and do nothing.
    DefaultStreamGoesOn,
    /// Finalizing answers how many rows there are; unlearned, none.
    FinalizeCountsRows,
    /// A commit is all or nothing; unlearned, good streams are committed beside bad ones.
    CommitIsAtomic,
    /// A stream is committed once; unlearned, its commit is answered again.
    CommitsOnce,
    /// Only finalized streams are committed.
    CommitNeedsFinalize,
    /// A commit of a stream whose life is over names its state; unlearned, there is no such stream.
    CollectedStreamInvalid,
    /// A commit's streams are of one table.
    CommitOfOneTable,
    /// What is wrong with single streams stands in an OK answer; unlearned, it is the call's status.
    CommitErrorsInOk,
    /// A commit names at most 10,000 streams.
    CommitSizeLimited,
    /// Finalizing makes nothing visible; unlearned, everything.
    FinalizeShowsNothing,
    /// Only PENDING streams are committed.
    CommitsPendingOnly,

    // Values (write-api.md 3.5, 5.1 to 5.3).
    /// Numbers, dates and times have their type's range.
    RangesChecked,
    /// A STRING(n) or BYTES(n) has at most that length.
    LengthsChecked,
    /// Values of a partitioning column lie around the day of the append.
    PartitionsBounded,
    /// JSON and GEOGRAPHY are read.
    JsonAndGeographyChecked,
    /// The parts of a packed TIME or DATETIME have their ranges; unlearned, a wrong one is zero.
    PackedPartsChecked,
    /// NUMERIC and BIGNUMERIC bytes begin with the lowest; unlearned, with the highest.
    NumericBytesLittleEndian,
    /// Each bad row is named; unlearned, none is.
    RowErrorsListed,
    /// A connection survives bad rows.
    RowErrorsInBand,

    // Writer schemas (write-api.md 1.2, 7.2).
    /// A connection's first request needs a writer schema; unlearned, it is told nothing of it.
    FirstRequestNeedsSchema,
    /// A connection's rows have one format.
    FormatFixed,
    /// On a default stream a later writer schema counts.
    DefaultStreamTakesNewSchema,
    /// A protobuf field that the table lacks is refused; unlearned, it is ignored.
    ExtraFieldsRefused,
    /// A REQUIRED column that the protobuf message lacks is refused at once; unlearned, its rows are.
    MissingColumnsRefused,
    /// A number that the descriptor lacks is passed over; unlearned, the row is refused.
    UnknownNumbersIgnored,

    // protobuf (write-api.md 5.1, 5.4).
    /// Column names are matched without regard to case.
    FieldNamesIgnoreCase,
    /// The `column_name` annotation goes before the field's name.
    ColumnNameAnnotation,
    /// The scalars of Google's table are taken beside the one that its clients use.
    ListedProtoTypesTaken,
    /// An unsigned 64-bit integer is not taken for an INT64.
    UnlistedProtoTypesRefused,
    /// Zigzag and fixed-size integers are taken for an INT64.
    SignedAndFixedIntegers,
    /// Enums are taken, by number or by name.
    EnumsTaken,
    /// Wrapper messages stand for their value.
    WrappersTaken,
    /// Messages are taken for STRUCT and RANGE.
    MessagesTaken,
    /// Messages of seconds and their fraction stand for a time.
    SecondsMessagesTaken,
    /// Repeated values may be packed.
    PackedAndUnpacked,
    /// A descriptor holds all types that it names; unlearned, others are bytes.
    DescriptorSelfContained,
    /// proto3's marks are refused.
    Proto3MarksRefused,
    /// The descriptor's default values stand for fields that a row lacks.
    ProtoDefaultsApply,
    /// Without one, a scalar that a row lacks is missing; unlearned, it is zero as in proto3.
    AbsentIsNotZero,
    /// proto2's required fields are required.
    ProtoRequiredChecked,

    // Changes (write-api.md 6).
    /// A row whose change type is INSERT is appended as any other.
    InsertIsNoChange,

    // Missing values (write-api.md 7.1).
    /// A column that the writer's schema lacks has its default value; unlearned, NULL.
    MissingInSchemaIsDefault,
    /// A value that a row lacks is NULL unless the request says otherwise; unlearned, the default value.
    MissingInRowsIsNull,
    /// What a request says of missing values goes on for those after it.
    DefaultInterpretationSticks,
    /// What a request says of one column goes before that; unlearned, it is ignored.
    ColumnInterpretationsGoFirst,
    /// What a request says of columns that are none is refused; unlearned, ignored.
    ColumnInterpretationsChecked,

    // Arrow (write-api.md 5.5).
    /// Columns take the Arrow types of Google's table; unlearned, none.
    ListedArrowTypesTaken,
    /// Arrow types that Google's table leaves out are refused.
    UnlistedArrowTypesRefused,
    /// TIMESTAMP takes Arrow's timestamps without a zone too.
    TimestampNeedsNoZone,
    /// A NULL bound of a RANGE is no bound; unlearned, it is a row error.
    NullBoundsUnbounded,
    /// A REPEATED column refuses a NULL list; unlearned, it is empty.
    NullListsRefused,
    /// Rows are one record batch message; unlearned, a schema message may stand before it.
    OneArrowMessageOnly,
    /// A record batch whose body is compressed is refused, unless a switch has it otherwise.
    CompressedArrowRefused,
    /// Arrow fields that are not nullable fit nullable columns.
    NonNullableFieldsTaken,

    // Changes by primary key (write-api.md 6).
    /// UPSERT and DELETE are taken.
    UpsertsTaken,
    /// Only a table with a primary key takes them; unlearned, upserts without one are rows like others.
    UpsertNeedsPrimaryKey,
    /// Only the default stream takes them.
    ChangesOnDefaultStreamOnly,
    /// A connection inserts rows or changes rows, not both.
    OneModePerConnection,
    /// What is no change type is refused.
    ChangeTypesChecked,
    /// The higher sequence number wins; unlearned, the later arrival.
    SequenceDecides,
    /// Without sequence numbers the later arrival wins; unlearned, of one request the earlier.
    ArrivalDecides,
    /// What is no sequence number is refused.
    SequenceNumbersChecked,
    /// A delete needs the columns of the key alone.
    DeleteNeedsKeyOnly,
    /// A delete is remembered; unlearned, a late upsert of lower rank brings the row back.
    DeletesRemembered,
    /// The names of pseudo-columns ignore case; unlearned, they are in capitals.
    PseudoColumnsIgnoreCase,
    /// Rows in Arrow change no others; unlearned, what they say of it is passed over.
    ArrowTakesNoChanges,
    /// A primary key has at most 16 columns.
    KeyColumnsLimited,
    /// Tables with more than 2,000 top-level columns take no changes.
    WideTablesTakeNoChanges,

    // The emulator's own.
    /// Fault plans are followed.
    FaultsFire,
    /// Calls on tables whose names end in `_reconnect_on_close` end after some requests (testing.md 3.1).
    ReconnectingTables,
    /// Openings of calls on tables whose names end in `_initial_connect_failure` fail (testing.md 3.1).
    HardToOpenTables,
    /// Tokens are checked where they are required.
    TokensChecked,
    /// What becomes visible is recorded.
    VisibilityRecorded,
}
