//! `stratumctl`: what an operator types. Touches the admin API over HTTP, the terminal, and the files it is given.
//!
//! Every text of the founder is cleaned before it reaches the terminal.

mod client;
mod show;
mod table;

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use client::Client;
pub use table::{codes_table, joins_table};

/// Operate a lab founder.
#[derive(Parser)]
#[command(name = "stratumctl", version)]
pub struct Args {
    /// Base URL of the admin API.
    #[arg(long, global = true, requires = "token")]
    server: Option<String>,
    /// Bearer token. It shows in the process list: prefer --config.
    #[arg(long, global = true, requires = "server")]
    token: Option<String>,
    /// stratumctl.json of the lab founder's directory.
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["server", "token"])]
    config: Option<PathBuf>,
    /// How to print.
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Top,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Top {
    /// Cluster administration.
    #[command(subcommand)]
    Admin(Admin),
}

#[derive(Subcommand)]
enum Admin {
    /// Nodes of the cluster.
    #[command(subcommand)]
    Nodes(Nodes),
}

#[derive(Subcommand)]
enum Nodes {
    /// Machines that registered to join.
    #[command(subcommand)]
    Joins(Joins),
    /// Join codes.
    #[command(subcommand)]
    JoinCodes(JoinCodes),
}

#[derive(Subcommand)]
enum Joins {
    /// List them.
    List,
    /// Show one, with its hardware, steps and log.
    Show {
        /// nj-...
        id: String,
    },
    /// Approve the machine whose console shows the pairing code.
    Approve {
        /// nj-...
        id: String,
        /// The pairing code on the machine's console, e.g. 4F7-K2Q. Asked for on a terminal.
        #[arg(long)]
        pairing: Option<String>,
        /// The assignment as JSON: the documented request, or its `assignment` alone.
        #[arg(long, value_name = "FILE")]
        assignment: Option<PathBuf>,
    },
    /// Reject it.
    Reject {
        /// nj-...
        id: String,
        /// Why; the machine's console shows it.
        #[arg(long)]
        reason: String,
    },
    /// Queue a failed join again.
    Retry {
        /// nj-...
        id: String,
    },
}

#[derive(Subcommand)]
enum JoinCodes {
    /// Make one. The code is shown this once.
    Create {
        /// Seconds it lives, 300 to 604800.
        #[arg(long, default_value_t = 86_400)]
        ttl: u64,
        /// A remark for the list.
        #[arg(long, default_value = "")]
        note: String,
    },
    /// List them.
    List,
    /// Take one back.
    Revoke {
        /// jc-...
        id: String,
    },
}

/// Runs one command; prints to stdout.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // The HTTP library asks for one when it was built with TLS, although this API is plain HTTP. A second install changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = client(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Top::Admin(Admin::Nodes(nodes)) = &args.command;
    let text = runtime.block_on(async {
        match nodes {
            Nodes::Joins(joins) => self::joins(&client, args.output, joins).await,
            Nodes::JoinCodes(codes) => join_codes(&client, args.output, codes).await,
        }
    })?;
    let mut out = std::io::stdout().lock();
    // A reader that has seen enough (`| head`) is no error.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

async fn joins(client: &Client, output: Output, joins: &Joins) -> anyhow::Result<String> {
    let base = "/v1/admin/cluster/joins";
    let (answer, text): (Value, fn(&Value) -> String) = match joins {
        Joins::List => (client.get(base).await?, joins_table),
        Joins::Show { id } => (client.get(&format!("{base}/{}", checked(id)?)).await?, show::join),
        Joins::Approve { id, pairing, assignment } => {
            let id = checked(id)?;
            let body = match assignment {
                Some(file) => approval(file)?,
                None => json!({}),
            };
            let pairing = pairing_code(pairing.as_deref(), id)?;
            let path = format!("{base}/{id}/approve?pairing={pairing}");
            (client.post(&path, &body).await?, show::approved)
        }
        Joins::Reject { id, reason } => {
            let path = format!("{base}/{}/reject", checked(id)?);
            (client.post(&path, &json!({ "reason": reason })).await?, |join| show::done(join, "rejected"))
        }
        Joins::Retry { id } => {
            let path = format!("{base}/{}/retry", checked(id)?);
            (client.post(&path, &json!({})).await?, |join| show::done(join, "queued again"))
        }
    };
    Ok(printed(output, &answer, text))
}

async fn join_codes(client: &Client, output: Output, codes: &JoinCodes) -> anyhow::Result<String> {
    let base = "/v1/admin/cluster/join-codes";
    let (answer, text): (Value, fn(&Value) -> String) = match codes {
        JoinCodes::Create { ttl, note } => {
            (client.post(base, &json!({ "ttlSeconds": ttl, "note": note })).await?, show::created)
        }
        JoinCodes::List => (client.get(base).await?, codes_table),
        JoinCodes::Revoke { id } => {
            client.delete(&format!("{base}/{}", checked(id)?)).await?;
            (json!({ "id": id }), |code| format!("{} is revoked.\n", show::cell(&code["id"])))
        }
    };
    Ok(printed(output, &answer, text))
}

fn printed(output: Output, answer: &Value, text: fn(&Value) -> String) -> String {
    match output {
        // JSON escapes control characters; ASCII only, so that nothing else reaches the terminal either.
        Output::Json => ascii_json(answer) + "\n",
        Output::Text => text(answer),
    }
}

fn ascii_json(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || matches!(c, ' '..='~') {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

fn client(args: &Args) -> anyhow::Result<Client> {
    match (&args.config, &args.server, &args.token) {
        (Some(file), _, _) => {
            let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let value: Value =
                serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", file.display()))?;
            match (value["server"].as_str(), value["token"].as_str()) {
                (Some(server), Some(token)) => Client::new(server, token),
                _ => bail!("{} names no server and token", file.display()),
            }
        }
        (None, Some(server), Some(token)) => Client::new(server, token),
        _ => bail!(
            "which founder? Give --config FILE (stratumctl.json in the lab founder's directory), or --server and --token"
        ),
    }
}

/// An id goes into a URL: only what ids are made of.
fn checked(id: &str) -> anyhow::Result<&str> {
    let ok = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if ok { Ok(id) } else { bail!("that is no id") }
}

fn approval(file: &PathBuf) -> anyhow::Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let value: Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", file.display()))?;
    let whole = value.get("assignment").is_some() || value.get("copyFrom").is_some();
    Ok(if whole { value } else { json!({ "assignment": value }) })
}

/// The pairing code that the operator sees on the machine. Approving without comparing must be hard.
fn pairing_code(given: Option<&str>, id: &str) -> anyhow::Result<String> {
    let typed = match given {
        Some(typed) => typed.to_owned(),
        None if std::io::stdin().is_terminal() => {
            eprint!("Pairing code on the console of the machine that is to become {id}: ");
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line)?;
            line
        }
        None => bail!(
            "nobody compared the pairing codes. Read the code on the machine's own console and give it with \
             --pairing XXX-XXX, or run this on a terminal, where it is asked for"
        ),
    };
    written(&typed).context("a pairing code has six characters, like 4F7-K2Q")
}

/// As the founder writes it, whatever case and separators were typed.
fn written(typed: &str) -> Option<String> {
    let chars: String = typed
        .chars()
        .filter(|c| !matches!(c, '-' | ' ' | '\t' | '\r' | '\n'))
        .collect::<String>()
        .to_ascii_uppercase();
    let ok = chars.len() == 6 && chars.bytes().all(|b| b.is_ascii_alphanumeric());
    ok.then(|| format!("{}-{}", &chars[..3], &chars[3..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn a_pairing_code_is_taken_as_people_type_it() {
        for typed in ["4F7-K2Q", "4f7k2q", " 4f7 k2q\n"] {
            assert_eq!(written(typed).as_deref(), Some("4F7-K2Q"));
        }
        for bad in ["", "4F7-K2", "4F7-K2Q1", "4F7-K2&"] {
            assert_eq!(written(bad), None);
        }
    }

    #[test]
    fn json_output_is_ascii() {
        assert_eq!(ascii_json(&json!("a\u{202e}\u{1b}\u{1f600}")), "\"a\\u202e\\u001b\\ud83d\\ude00\"");
    }
}
