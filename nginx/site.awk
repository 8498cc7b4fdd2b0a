# nginx/site.awk -- the http block of nginx.conf.in as a site, to be included in the http block of a system's own nginx: what it sets
# for all servers is moved into its servers, so that no other site is touched, unless a server sets the same itself.

function flush_server(    i, n, name, text) {
    print "    server {"
    n = split(settings, text, "\1")
    for (i = 1; i < n; i++) {
        name = text[i]
        sub(/^ +/, "", name)
        sub(/[ \n].*/, "", name)
        if (block !~ "\n        " name " ")
            print "    " text[i]
    }
    printf "%s", substr(block, 2)
}

/^http \{$/                                 { inside = 1; next }
!inside || /_temp_path /                    { next }
/^}$/                                       { exit }
state == ""  && /^    server \{$/           { state = "server"; block = "\n"; next }
state == ""  && /^    (map|split_clients|upstream) .*\{$/ { state = "block" }
state == ""  && /^    (log_format|limit_req_zone|limit_conn_zone) / { state = "statement" }
state == ""  && /^    [a-z]/                { state = "setting" }

state == "server"    { block = block $0 "\n"; if (/^    }$/) { flush_server(); state = "" } next }
state == "setting"   { setting = setting $0; if (/;$/) { settings = settings setting "\1"; setting = ""; state = "" } next }
                     { print }
state == "block"     && /^    }$/ { state = "" }
state == "statement" && /;$/      { state = "" }
