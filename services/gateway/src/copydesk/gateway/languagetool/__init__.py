"""The HTTP API of LanguageTool, for editors and browser extensions that speak it: requests, matches, answers.

What is here is pure: from the fields of a request to what is to be corrected, and from edits to matches. The facts
about the API are those of LanguageTool's own server (languagetool.org/http-api, version 2).
"""
