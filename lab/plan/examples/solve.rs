//! Plans MiniMalloc CSV files and prints one line of JSON for each: `solve [--capacity N] [--time-limit S] [--svg FILE] FILE…`.

use core::cell::Cell;
use core::time::Duration;
use omniheap_plan::{Options, Plan, Status, csv, solve, validate};
use std::time::Instant;

fn main() {
    let (mut capacity, mut limit, mut svg) = (None, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--capacity" => capacity = args.next().and_then(|v| v.parse().ok()),
            "--time-limit" => {
                limit = args.next().and_then(|v| v.parse().ok()).map(Duration::from_secs_f64);
            }
            "--svg" => svg = args.next(),
            file => run(file, capacity, limit, svg.as_deref()),
        }
    }
}

fn run(file: &str, capacity: Option<u64>, limit: Option<Duration>, svg: Option<&str>) {
    let text = std::fs::read_to_string(file).expect("the file can be read");
    let table = match csv::read(&text, capacity) {
        Ok(table) => table,
        Err(error) => return eprintln!("{file}: {error}"),
    };
    drop(text);
    let start = Instant::now();
    let first = Cell::new(None);
    let progress = |_| first.set(first.get().or(Some(start.elapsed().as_secs_f64())));
    let options = Options { progress: Some(&progress), time_limit: limit, ..Options::default() };
    let plan = match solve(&table.problem, &options) {
        Ok(plan) => plan,
        Err(error) => return eprintln!("{file}: {error}"),
    };
    let seconds = start.elapsed().as_secs_f64();
    if plan.fits() {
        validate(&table.problem, &plan.spots).expect("a plan that fits is valid");
    }
    let status = status(&plan);
    println!(
        "{{\"name\":\"{}\",\"buffers\":{},\"capacity\":{},\"lower_bound\":{},\"peak\":{},\"status\":\"{status}\",\"seconds\":{seconds:.3},\"first_plan_seconds\":{:.3},\"nodes\":{}}}",
        file.rsplit('/').next().unwrap_or(file),
        table.names.len(),
        capacity.map_or("null".to_owned(), |c: u64| c.to_string()),
        plan.lower_bound(),
        plan.peak(),
        first.get().unwrap_or(seconds),
        plan.nodes
    );
    if let Some(path) = svg {
        std::fs::write(path, omniheap_plan::svg::draw(&table.problem, &plan, &table.names))
            .expect("the file can be written");
    }
}

fn status(plan: &Plan) -> String {
    match &plan.status {
        Status::Optimal => "optimal".to_owned(),
        Status::Feasible { gap } => format!("feasible, gap {gap}"),
        Status::Undecided { excess } => format!("undecided, {excess} too many"),
        Status::Infeasible { certificate } => format!("infeasible: {certificate}"),
    }
}
