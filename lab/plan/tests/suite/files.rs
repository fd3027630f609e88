//! Files that are read, and files that are refused.

use omniheap_plan::csv::{self, CsvErrorKind as Kind};
use omniheap_plan::{Options, RegionSet, Status, solve, validate};
use std::path::Path;

#[test]
fn every_column_is_read_in_any_order() {
    let text = "size,upper,id,lower,alignment,gaps,hint,offset\r\n8,9,a,0,4,2-3 5-7,16,0\n\n4,5,b c,1,,,,\n";
    let table = csv::read(text, Some(64)).expect("it is well formed");
    assert_eq!(table.names, ["a", "b c"]);
    let a = &table.problem.buffers[0];
    assert_eq!((a.size, a.align, a.live.start, a.live.end, a.hint), (8, 4, 0, 9, Some(16)));
    assert_eq!(
        a.intervals().map(|i| (i.start, i.end)).collect::<Vec<_>>(),
        [(0, 2), (3, 5), (7, 9)]
    );
    assert_eq!(table.offsets, [Some(0), None]);
    assert_eq!(table.problem.regions[0].capacity, Some(64));
}

#[test]
fn fixed_offsets_hints_and_aliases_are_read() {
    let text = "id,lower,upper,size,alignment,gaps,hint,fixed,alias\na,0,9,8,4,2-3,,12,\nb,1,5,4,1,,7,,\nc,9,9000,8,1,,,,a\n";
    let table = csv::read(text, None).expect("it is well formed");
    assert_eq!(table.problem.buffers[0].fixed, Some(12));
    assert_eq!(table.problem.aliases, [(2, 0)]);
    assert_eq!(table.problem.buffers[1].hint, Some(7));
    assert_eq!(table.problem.buffers[0].gaps.len(), 1);
    assert_eq!(table.offsets, [None; 3]);
}

#[test]
fn wrong_files_are_refused_with_line_and_reason() {
    let head = "id,lower,upper,size,alignment,gaps\n";
    let with_alias = head.replace('\n', ",alias\n");
    let number = |column, field: &str| Kind::Number { column, field: field.into() };
    let table: [(&str, usize, Kind); 19] = [
        ("", 1, Kind::NoHeader),
        ("\n\n", 1, Kind::NoHeader),
        ("id,lower,upper\n", 1, Kind::MissingColumn("size")),
        ("id,lower,upper,size,colour\n", 1, Kind::UnknownColumn("colour".into())),
        ("id,lower,upper,size,region\n", 1, Kind::UnknownColumn("region".into())),
        ("id,lower,start,upper,size\n", 1, Kind::DuplicateColumn("start".into())),
        ("a,0,1,2,1", 2, Kind::FieldCount { expected: 6, found: 5 }),
        ("a,x,1,2,1,", 2, number("lower", "x")),
        ("a,0,-1,2,1,", 2, number("upper", "-1")),
        ("a,0,1,+2,1,", 2, number("size", "+2")),
        ("a,0,1,18446744073709551616,1,", 2, number("size", "18446744073709551616")),
        ("a,0,1,1.5,1,", 2, number("size", "1.5")),
        ("a,4,4,2,1,", 2, Kind::Lifetime { lower: 4, upper: 4 }),
        ("a,0,1,2,0,", 2, Kind::ZeroAlignment),
        (",0,1,2,1,", 2, Kind::EmptyId),
        ("a,0,9,2,1,\n\na,1,2,3,1,", 4, Kind::DuplicateId("a".into())),
        ("a,0,9,2,1,,b", 2, Kind::UnknownAlias("b".into())),
        ("a,0,9,2,1,5-3", 2, Kind::Gap("5-3".into())),
        ("a,0,9,2,1,2-4 3-5", 2, Kind::Gap("3-5".into())),
    ];
    for (text, line, kind) in table {
        let head = if kind == Kind::UnknownAlias("b".into()) { &with_alias } else { head };
        let whole = if line == 1 { text.to_owned() } else { format!("{head}{text}\n") };
        let error = csv::read(&whole, None).expect_err(text);
        assert_eq!((error.line, &error.kind), (line, &kind), "{text:?}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")), "{error}");
    }
}

#[test]
fn files_at_the_edge_of_a_rule_are_read() {
    let most = u64::MAX;
    let read = |text: &str| csv::read(text, None);
    // Gaps may touch each other and both ends of the life, and lives may end at the last tick.
    let text = format!(
        "\u{feff}ID,Begin,upper,size,gaps,hint,fixed\n a , 0,{most},{most},0-2 2-4 9-{most},-1,0\n"
    );
    let table = read(&text).expect("it is well formed");
    let a = &table.problem.buffers[0];
    assert_eq!((a.size, a.live.end, a.hint, a.fixed), (most, most, None, Some(0)));
    assert_eq!(
        a.gaps.iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>(),
        [(0, 2), (2, 4), (9, most)]
    );
    assert_eq!(table.names, ["a"]);
    // An inclusive end has no tick behind the last one.
    let error = read(&format!("id,start,end,size\na,0,{most},1\n")).expect_err("it overflows");
    assert_eq!(error.kind, Kind::Number { column: "end", field: most.to_string() });
    assert!(read(&format!("id,start,end,size\na,0,{},1\n", most - 1)).is_ok());
    for (text, kind) in [
        ("id,lower,upper,size,gaps\na,2,9,1,1-3\n", Kind::Gap("1-3".into())),
        ("id,lower,upper,size,gaps\na,2,9,1,3-10\n", Kind::Gap("3-10".into())),
        ("id,lower,upper,size,gaps\na,2,9,1,3-3\n", Kind::Gap("3-3".into())),
        ("id,lower,upper,size,gaps\na,2,9,1,3-4@0:16\n", Kind::Gap("3-4@0:16".into())),
        ("id,lower,upper,end,size\na,2,9,8,1\n", Kind::DuplicateColumn("end".into())),
        ("id,lower,end,upper,size\na,2,9,8,1\n", Kind::DuplicateColumn("upper".into())),
        ("id,upper,size\n", Kind::MissingColumn("lower")),
        ("lower,upper,size\n", Kind::MissingColumn("id")),
        ("id,lower,size\n", Kind::MissingColumn("upper")),
    ] {
        assert_eq!(read(text).expect_err(text).kind, kind, "{text:?}");
    }
}

#[test]
fn aliases_name_buffers_before_and_behind_them() {
    let text = "id,lower,upper,size,alignment,gaps,hint,fixed,alias,offset\n\
        a,0,9,8,4,2-3 5-7,,12,b c,12\nb,1,5,4,1,,7,,,0\nc,9,10,8,1,,,,,12\n";
    let table = csv::read(text, None).expect("well formed");
    assert_eq!(table.problem.aliases, [(0, 1), (0, 2)]);
    assert_eq!(table.problem.buffers[0].gaps.len(), 2);
    assert_eq!(table.offsets, [12, 0, 12].map(Some));
}

/// Known optima of public files, where they are at hand.
#[test]
fn public_problems_are_solved() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/planning");
    if !folder.is_dir() {
        eprintln!("IGNORED: public_problems_are_solved: {} is not here", folder.display());
        return;
    }
    for (name, peak) in [("A", 1_048_576), ("C", 1_039_360), ("E", 1_048_576), ("G", 1_048_576)] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.1048576.csv")))
            .expect("the file can be read");
        let table = csv::read(&text, Some(1 << 20)).expect("it is well formed");
        let plan = solve(&table.problem, &Options { effort: 50_000, ..Options::default() })
            .expect("it makes sense");
        validate(&table.problem, &plan.spots).expect("it is valid");
        assert_eq!((plan.peak(), plan.status), (peak, Status::Optimal), "{name}");
    }
}

#[test]
fn regions_are_read() {
    let text = "id,lower,upper,size,regions\na,0,4,8,0\nb,2,6,4,0 1\nc,4,8,8,\n";
    let table = csv::read(text, None).expect("well formed");
    let sets = [RegionSet::only(0), RegionSet::only(0).and(1), RegionSet::ALL];
    let found: Vec<_> = table.problem.buffers.iter().map(|b| b.regions).collect();
    assert_eq!(found, sets);
    assert_eq!(table.regions, [None; 3]);
    for wrong in ["64", "x", "-1", "0;1"] {
        let text = format!("id,lower,upper,size,regions\na,0,4,8,{wrong}\n");
        let error = csv::read(&text, None).expect_err(wrong);
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("numbers of regions"), "{error}");
    }
}
