//! The shell side of a command: its arguments, its outcome, completions and manual pages.
use crate::Failure;
use crate::file::NewFile;
use crate::output;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};
use serde::Serialize;
use std::io::{Write as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

/// Width of help where the terminal's is unknown, and at most.
const WIDEST: usize = 120;

/// Reads the arguments of this process and runs the command. Prints a failure to standard error.
pub fn run<Line: Parser>(command: impl FnOnce(Line) -> Result<(), Failure>) -> ExitCode {
    let line = of::<Line>();
    let name = line.get_name().to_owned();
    let read = line.try_get_matches().and_then(|mut found| Line::from_arg_matches_mut(&mut found));
    let outcome = match read {
        Ok(line) => command(line),
        // Help and version are answers.
        Err(said) if !said.use_stderr() || !is_json() => said.exit(),
        Err(said) => Err(Failure::input(reason(&said))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&name, &failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Prints a failure to standard error, as one line of text or as one JSON object.
fn say(command: &str, failure: &Failure) {
    #[derive(Serialize)]
    struct Said<'a> {
        error: &'a str,
        reason: &'static str,
        code: u8,
    }
    let (error, reason, code) = (&*failure.to_string(), failure.reason(), failure.code());
    let line = match is_json() {
        true => serde_json::to_string(&Said { error, reason, code }).unwrap_or_default(),
        false => format!("{command}: {error}"),
    };
    // The exit code reports the failure too, so an unread or full standard error is no matter.
    let _ = writeln!(stderr(), "{line}");
}

/// Returns the command with settings that derived attributes cannot give to all its parts.
fn of<Line: CommandFactory>() -> clap::Command {
    // A negative number is a value that can be refused, not an unknown option.
    let numbers = |arg: clap::Arg| {
        let takes = arg.get_action().takes_values() && !arg.is_allow_hyphen_values_set();
        arg.allow_negative_numbers(takes)
    };
    Line::command().max_term_width(WIDEST).mut_subcommands(move |one| one.mut_args(numbers))
}

/// Returns true if the arguments ask for JSON, even if other arguments are invalid.
fn is_json() -> bool {
    std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// Returns the line of a usage error with the reason.
fn reason(said: &clap::Error) -> String {
    if said.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "name a subcommand; `--help` lists them".into();
    }
    let text = said.to_string();
    let until_usage = text.split("\n\n").next().unwrap_or(&text);
    let line = until_usage.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error: ").to_owned()
}

/// Print what completes this command in a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  omniheap completions bash > ~/.local/share/bash-completion/completions/omniheap
  omniheap completions zsh > ~/.zfunc/_omniheap
  omniheap completions fish > ~/.config/fish/completions/omniheap.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the completions of a command line.
    pub fn print<Line: CommandFactory>(&self) -> Result<(), Failure> {
        let (mut command, mut script) = (of::<Line>(), Vec::new());
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        output::print_raw(String::from_utf8_lossy(&script).trim_end())
    }
}

/// Print the manual page, or write the pages of all commands
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  omniheap man | man -l -
  omniheap man --out ~/.local/share/man/man1")]
pub struct Man {
    /// The folder that gets one page for each command
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Prints or writes the pages of a command line.
    pub fn write<Line: CommandFactory>(&self) -> Result<(), Failure> {
        let mut command = of::<Line>().disable_help_subcommand(true);
        command.build();
        let Some(folder) = &self.out else {
            return output::print_raw(String::from_utf8_lossy(&page(&command)?).trim_end());
        };
        std::fs::create_dir_all(folder).map_err(|error| Failure::unwritable(folder, &error))?;
        let pages = command.get_subcommands().chain([&command]);
        for one in pages {
            let name = one.get_display_name().unwrap_or(one.get_name());
            let file = NewFile::create(&folder.join(format!("{name}.1")))?;
            let content = page(one)?;
            file.write(|sink| sink.write_all(&content))?;
        }
        Ok(())
    }
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}
