//! `stratum-manual DIR DATE`: writes the man pages and the shell completions of the package below DIR.
//!
//! The pages are written by hand (`pages/`); their options come from the command lines themselves, so that no page can list one that is
//! not there. Part of the build, never of what ships.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use stratum_join::cli::arguments::{stratum_installer, stratum_join};

/// The pages, each named as it is installed.
const PAGES: [(&str, &str); 3] = [
    ("stratum-join.8", include_str!("../pages/stratum-join.8")),
    ("stratum-installer.8", include_str!("../pages/stratum-installer.8")),
    ("join.yaml.5", include_str!("../pages/join.yaml.5")),
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, date] = args.as_slice() else { bail!("usage: stratum-manual DIR DATE") };
    let dir = Path::new(dir);
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, text) in PAGES {
        write(&dir.join(name), page(text, date)?.as_bytes())?;
    }
    for program in [stratum_join(), stratum_installer()] {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let name = program.get_name();
            write(&dir.join(format!("{name}.{shell}")), completions(shell, &program)?.as_bytes())?;
        }
    }
    Ok(())
}

/// Both command lines, with the names of their subcommands filled in.
fn programs() -> [Command; 2] {
    [stratum_join(), stratum_installer()].map(|mut program| {
        program.build();
        program
    })
}

/// What one shell is told about one program.
fn completions(shell: Shell, program: &Command) -> Result<String> {
    let mut shown = visible(program).version(env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown, program.get_name(), &mut text);
    let text = String::from_utf8(text).context("the completions are no text")?;
    // clap_complete 4.6 looks for the subcommands of a program with a hyphen in its name under another name than it gives them.
    let (wrong, right) =
        (program.get_name().replace('-', "__subcmd__"), program.get_name().replace('-', "__"));
    Ok(text.replace(&wrong, &right))
}

/// A command line without what is hidden in its help: nobody is to meet what only units ask for by pressing Tab.
fn visible(command: &Command) -> Command {
    // clap keeps a name for ever; this program ends in a moment.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut shown = Command::new(name).disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(visible);
    shown.args(args).subcommands(subcommands)
}

/// A page with its date, its version and its options in their places.
fn page(text: &str, date: &str) -> Result<String> {
    let mut page = String::new();
    for line in text.lines() {
        match line.strip_prefix("@OPTIONS ").and_then(|rest| rest.strip_suffix('@')) {
            Some(command) => page.push_str(&options(command)?),
            None => {
                page.push_str(&line.replace("@DATE@", date).replace("@VERSION@", env!("CARGO_PKG_VERSION")));
                page.push('\n');
            }
        }
    }
    Ok(page)
}

/// The options of one command, `program subcommand...`, as a list in man's macros.
fn options(command: &str) -> Result<String> {
    let (program, subcommand) =
        command.split_once(' ').context("@OPTIONS needs a program and a subcommand")?;
    let programs = programs();
    let program =
        programs.iter().find(|c| c.get_name() == program).with_context(|| format!("no program {program}"))?;
    let mut words = subcommand.split(' ');
    let found = words.try_fold(program, |at, word| at.find_subcommand(word));
    let found = found.with_context(|| format!("there is no `{command}`"))?;
    let mut rendered = Vec::new();
    let found = found.clone().mut_arg("help", |help| help.hide(true));
    Man::new(found).render_options_section(&mut rendered)?;
    let text = String::from_utf8(rendered).context("the options are no text")?;
    // The heading is the page's own, and a paragraph with nothing in it is none.
    let kept = |line: &&str| !line.is_empty() && ![".SH", ".ie", ".el"].iter().any(|m| line.starts_with(m));
    Ok(text.lines().filter(kept).map(|line| line.replace("\\*(Aq", "\\(aq") + "\n").collect())
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a build's own output, made anew at each run")]
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_a_person_sees_is_described_with_its_options() {
        let pages: String = PAGES.iter().map(|(_, text)| *text).collect();
        for program in programs() {
            described(&pages, program.get_name(), &program);
        }
    }

    /// Of each command below that has options of its own.
    fn described(pages: &str, name: &str, command: &Command) {
        for command in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
            let name = format!("{name} {}", command.get_name());
            if command.has_subcommands() {
                described(pages, &name, command);
            } else {
                let wanted = format!("@OPTIONS {name}@");
                assert!(pages.contains(&wanted), "no page says {wanted}");
            }
        }
    }

    #[test]
    fn every_page_renders_and_nothing_is_left_to_fill_in() {
        for (name, text) in PAGES {
            let page = page(text, "2026-11-29").unwrap();
            assert!(page.starts_with(".TH ") && page.contains("2026-11-29"), "{name}");
            assert!(!page.lines().any(|line| line.starts_with('@')), "{name}");
        }
        assert!(options("stratum-join no-such-command").is_err());
    }

    #[test]
    fn a_shell_offers_what_help_shows_and_nothing_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(shell, &stratum_join()).unwrap();
            for shown in ["status", "probe", "exit-when-joined", "no-read"] {
                assert!(text.contains(shown), "{shell}: {shown}");
            }
            for hidden in ["give-back", "record-exit", "helper", "firstboot"] {
                assert!(!text.contains(hidden), "{shell}: {hidden}");
            }
        }
    }

    #[test]
    fn tab_in_bash_completes_the_options_of_a_subcommand() {
        let offered = |program: &Command, words: &str, place: u8, last: &str, before: &str| {
            let name = program.get_name();
            let function = name.replace('-', "__");
            let script = format!(
                "{}\nCOMP_WORDS=({words}); COMP_CWORD={place}; _{function} {name} '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
                completions(Shell::Bash, program).unwrap()
            );
            let out = std::process::Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
            String::from_utf8(out.stdout).unwrap()
        };
        let join = stratum_join();
        assert!(offered(&join, "stratum-join console --", 2, "--", "console").contains("--tty"));
        assert_eq!(offered(&join, "stratum-join status --output", 3, "", "--output").trim(), "text json");
        let installer = stratum_installer();
        assert!(offered(&installer, "stratum-installer join --", 2, "--", "join").contains("--code-file"));
    }

    #[test]
    fn the_options_of_a_page_are_those_of_the_command_line() {
        let text = options("stratum-installer join").unwrap();
        for option in ["\\-\\-endpoint", "\\-\\-code\\-file", "\\-\\-url", "\\-\\-check", "\\-\\-output"] {
            assert!(text.contains(option), "{option} is not in\n{text}");
        }
        assert!(!text.contains("\\-\\-help"));
    }
}
