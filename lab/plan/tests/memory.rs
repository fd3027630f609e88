//! Bytes that a table may take, for each byte of it: a small file does not end a machine.

#[path = "../../../tests/fuzz/src/meter.rs"]
#[expect(unreachable_pub, reason = "the fuzz package uses all of this file")]
mod meter;

use core::fmt::Write as _;
use omniheap_plan::csv;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Bytes for each byte of the largest tables that are made of what costs most.
const TIMES: usize = 32;

/// Bytes of each table, about.
const SIZE: usize = 6 << 20;

#[test]
fn a_table_takes_a_few_times_its_bytes() {
    let mut rows = String::from("id,lower,upper,size\n");
    for number in 0..SIZE / 12 {
        writeln!(rows, "{number:x},0,1,1").expect("a string takes everything");
    }
    let blank = format!("id,lower,upper,size\n{}", "\n".repeat(SIZE));
    let gaps = format!("id,lower,upper,size,gaps\na,0,9,1,{}\n", "1-2 ".repeat(SIZE / 4));
    let alias = format!("id,lower,upper,size,alias\na,0,9,1,\nb,0,9,1,{}\n", "a ".repeat(SIZE / 2));
    let regions = format!("id,lower,upper,size,regions\na,0,9,1,{}\n", "0 ".repeat(SIZE / 2));
    let header = ",".repeat(SIZE);
    for text in [&rows, &blank, &gaps, &alias, &regions, &header] {
        println!("{}", &text[..60]);
        let read = meter::within(TIMES, text.as_bytes(), || csv::read(text, None));
        assert_eq!(read.is_ok(), text != &gaps && text != &header);
    }
}
